"""The shared KV store: prefixes by group, least recently used evicted first, one read bandwidth for all."""

from __future__ import annotations

from collections import OrderedDict

from pdops.sim.instruments import Instruments
from pdops.sim.loop import Factors, Loop
from pdops.sim.records import RequestRecord
from pdops.sim.spec import Store


class KvStore:
    """The store.

    Args:
        spec: its size and speed.
        loop: for the time.
        meter: its page.
        bytes_per_block: of KV.
        block_size: tokens in a block.
    """

    def __init__(self, spec: Store, loop: Loop, meter: Instruments, bytes_per_block: float, block_size: int) -> None:
        self._spec, self._loop, self.meter = spec, loop, meter
        self._block_bytes, self._block_size = bytes_per_block, block_size
        self.up = True
        self.speed, self.size = Factors(), Factors()
        self._objects: OrderedDict[int, int] = OrderedDict()
        self._blocks = 0
        self._busy_until_s = 0.0
        self._hollow: set[int] = set()
        self._hollow_wait_s = 0.0
        meter.set("master_active_clients", 0.0)

    def lookup(self, record: RequestRecord, local_tokens: int) -> tuple[int, float]:
        """Look for more of a prefix than is cached already.

        Returns:
            The tokens it has and the seconds until they are there; a store that is down has none, after its timeout,
            and an object whose data is gone none after a read in vain.
        """
        if not self.up:
            return 0, self._spec.timeout_s
        meter = self.meter
        meter.inc("master_get_replica_list_requests")
        meter.inc("total_get_nums_")
        blocks = self._objects.get(record.group, 0)
        found = min(blocks, record.shared_tokens // self._block_size)
        latency_s = self._spec.latency_s / self.speed.value
        if found * self._block_size <= local_tokens:
            if not blocks:
                meter.inc("master_get_replica_list_failures")
            else:
                meter.inc("valid_get_nums_")
            return 0, latency_s
        self._objects.move_to_end(record.group)
        if record.group in self._hollow:
            # The master answers with where it was, so it counts a hit.
            meter.inc("valid_get_nums_")
            meter.inc("mem_cache_hit_nums_")
            return 0, latency_s + self._hollow_wait_s
        size = (found - local_tokens // self._block_size) * self._block_bytes
        meter.inc("valid_get_nums_")
        meter.inc("mem_cache_hit_nums_")
        meter.inc("mem_cache_hit_bytes", size)
        begin = max(self._loop.now, self._busy_until_s)
        self._busy_until_s = begin + size / (self._spec.bytes_per_s * self.speed.value)
        return found * self._block_size, latency_s + self._busy_until_s - self._loop.now

    def put(self, record: RequestRecord) -> None:
        """Keep the prefix of a computed prompt, if there is more of it than before."""
        blocks = record.shared_tokens // self._block_size
        if not self.up or blocks <= self._objects.get(record.group, 0):
            return
        meter = self.meter
        meter.inc("master_put_start_requests")
        if blocks > self._capacity():
            meter.inc("master_put_start_failures")
            meter.inc("master_put_start_alloc_failures")
            return
        self._blocks += blocks - self._objects.pop(record.group, 0)
        self._objects[record.group] = blocks
        meter.inc("master_put_end_requests")
        meter.observe("master_value_size_bytes", blocks * self._block_bytes)
        self.shrink()

    def shrink(self) -> None:
        """Evict what does not fit."""
        gone = freed = 0
        while self._objects and self._blocks > self._capacity():
            group, blocks = self._objects.popitem(last=False)
            self._hollow.discard(group)
            self._blocks -= blocks
            freed += blocks
            gone += 1
        if gone:
            self.meter.inc("master_successful_evictions")
            self.meter.inc("master_attempted_evictions")
            self.meter.inc("master_evicted_key_count", gone)
            self.meter.inc("master_evicted_size_bytes", freed * self._block_bytes)

    def lose(self) -> None:
        """Forget everything, as a restarted store does."""
        self._objects.clear()
        self._hollow.clear()
        self._blocks = 0

    def hollow(self, share: float, wait_s: float) -> None:
        """Lose the data of a `share` (0-1) of the objects, spread evenly, and none of their metadata; 0 brings all back.

        They stay so until they are evicted: who would write one anew is told that it is there.
        """
        groups = sorted(self._objects)
        kept = (int((i + 1) * share) == int(i * share) for i in range(len(groups)))
        self._hollow = {group for group, whole in zip(groups, kept, strict=True) if not whole}
        self._hollow_wait_s = wait_s

    def refresh(self) -> None:
        """Bring the gauges up to date."""
        self.meter.set("master_allocated_bytes", self._blocks * self._block_bytes)
        self.meter.set("master_total_capacity_bytes", float(int(self._spec.capacity_bytes * self.size.value)))
        self.meter.set("master_key_count", float(len(self._objects)))
        self.meter.set("mem_cache_nums_", float(len(self._objects)))

    def _capacity(self) -> float:
        return self._spec.capacity_bytes * self.size.value / self._block_bytes
