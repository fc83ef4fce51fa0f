"""KV blocks of one worker: held by requests, or kept as cache until somebody needs the room.

As in vLLM, blocks of a finished request stay findable until they are evicted, least recently used first, and count as
free. A prefix that several requests share counts once.
"""

from __future__ import annotations

from collections import OrderedDict

from pdops.sim.records import RequestRecord, Work


class BlockPool:
    """The blocks of a worker.

    Args:
        total: how many there are.
        block_size: tokens in a block.
    """

    __slots__ = ("_cached", "_cached_blocks", "_shared", "block_size", "enabled", "leaked", "total", "used")

    def __init__(self, total: int, block_size: int) -> None:
        self.total, self.block_size = total, block_size
        self.enabled = True
        self.used = self.leaked = 0
        self._cached: OrderedDict[int, int] = OrderedDict()
        self._cached_blocks = 0
        self._shared: dict[int, list[int]] = {}

    @property
    def free(self) -> int:
        """Blocks that a request may have; negative after the pool was made smaller."""
        return self.total - self.used - self.leaked

    @property
    def usage(self) -> float:
        """Held blocks as a share of all, 0-1."""
        return min(1.0, (self.used + self.leaked) / self.total)

    def cached_tokens(self, record: RequestRecord) -> int:
        """Return how much of a prompt is here."""
        return self._hit(record) * self.block_size

    def take(self, record: RequestRecord, work: Work, tokens: int) -> bool:
        """Hold blocks for the first `tokens` of a request, with what of them is cached; False when there is no room."""
        hit = self._hit(record)
        entry = self._shared.get(record.group)
        moved = 0 if entry is not None or not hit else self._cached[record.group]
        kept = self._cached.get(-record.id, 0) if work.resumed else 0
        own = -(-tokens // self.block_size) - hit
        if own + moved > self.free:
            return False
        if hit:
            if entry is None:
                self._forget(record.group)
                self._shared[record.group] = [1, moved]
                self.used += moved
            else:
                entry[0] += 1
        if kept:
            self._forget(-record.id)
            kept = min(kept, own)
        work.hit_blocks, work.own_blocks, work.tokens = hit, own, tokens
        work.left = max(1, tokens - (hit + kept) * self.block_size)
        self.used += own
        self._make_room()
        return True

    def grow(self, blocks: int) -> None:
        """Hold more blocks for requests that hold some; there must be room."""
        self.used += blocks
        if self._cached_blocks > self.free:
            self._make_room()

    def leak(self, blocks: int) -> None:
        """Lose free blocks to nobody."""
        self.leaked += blocks
        self._make_room()

    def computed(self, record: RequestRecord, work: Work) -> None:
        """Make the prefix of a computed prompt findable for others of its group."""
        wanted = record.shared_tokens // self.block_size
        if not self.enabled or not wanted:
            return
        entry = self._shared.get(record.group)
        if entry is None:
            # Held by this request from now on; older cached blocks of the group are the same blocks.
            self._forget(record.group)
            self._shared[record.group] = [1, min(wanted, work.own_blocks)]
            work.own_blocks -= min(wanted, work.own_blocks)
        elif work.hit_blocks:
            grown = min(max(0, wanted - entry[1]), work.own_blocks)
            entry[1] += grown
            work.own_blocks -= grown
        else:
            return
        work.hit_blocks = max(work.hit_blocks, 1)

    def release(self, record: RequestRecord, work: Work) -> None:
        """Let go of what a request holds; it stays cached while there is room."""
        self.used -= work.own_blocks
        if work.hit_blocks:
            entry = self._shared[record.group]
            entry[0] -= 1
            if entry[0] == 0:
                del self._shared[record.group]
                self.used -= entry[1]
                self._keep(record.group, entry[1])
        if work.own_blocks:
            self._keep(-record.id, work.own_blocks)
        work.own_blocks = work.hit_blocks = work.tokens = 0
        if self._cached_blocks > self.free:
            self._make_room()

    def wipe(self, share: float = 1.0) -> None:
        """Forget the oldest `share` (0-1) of what is cached and not in use."""
        left = self._cached_blocks * (1.0 - share)
        while self._cached_blocks > left:
            _, blocks = self._cached.popitem(last=False)
            self._cached_blocks -= blocks

    def resize(self, total: int) -> None:
        """Change how many blocks there are."""
        self.total = total
        self._make_room()

    def _hit(self, record: RequestRecord) -> int:
        if not self.enabled:
            return 0
        entry = self._shared.get(record.group)
        here = entry[1] if entry is not None else self._cached.get(record.group, 0)
        # The last token is always computed, so a prompt is never found whole.
        return min(here, record.shared_tokens // self.block_size, (record.prompt_tokens - 1) // self.block_size)

    def _keep(self, key: int, blocks: int) -> None:
        if not self.enabled:
            return
        self._forget(key)
        self._cached[key] = blocks
        self._cached_blocks += blocks

    def _forget(self, key: int) -> None:
        self._cached_blocks -= self._cached.pop(key, 0)

    def _make_room(self) -> None:
        cached = self._cached
        while self._cached_blocks > max(0, self.free):
            key, blocks = cached.popitem(last=False)
            over = self._cached_blocks - max(0, self.free)
            if blocks > over:
                cached[key] = blocks - over
                cached.move_to_end(key, last=False)
                self._cached_blocks -= over
                return
            self._cached_blocks -= blocks
