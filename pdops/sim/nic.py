"""KV on the wire: every worker has one NIC each way, and the transfers in progress share it equally.

A transfer runs at the least of its share at either end and what its link bears. Rates change only when a transfer
begins or ends, or a link does.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pdops.sim.loop import Factors, Loop
from pdops.sim.spec import Network, Zone

LOSS_SCALE, LOSS_POWER = 1290.0, 1.84
"""A share p of packets lost makes a transfer 1 + 1290 p^1.84 times slower: fitted to TCP pulls of a real pair at 1 % and
5 %, which took 1.3 and 6.2 times as long."""
RETRY_S = 0.2
"""Mean wait for a retransmission timeout, the least that Linux allows."""
_PACKET_BYTES = 4096.0
_SEGMENT_BYTES = 1448.0
_DONE_BYTES = 1e-3


@dataclass(slots=True, eq=False)
class Transfer:
    """One pull on its way. Times are virtual seconds."""

    src: Nic
    dst: Nic
    link: Link
    left: float
    done: Callable[[], None]
    rate: float = 0.0
    at_s: float = 0.0
    due_s: float = math.inf
    over: bool = False


@dataclass(slots=True, eq=False)
class Nic:
    """The NIC of a worker. `halts` say why nothing moves; `background` is the share that other traffic takes (0-1)."""

    worker: str
    zone: Zone
    rate: Factors = field(default_factory=Factors)
    delay: dict[object, float] = field(default_factory=dict)
    lost: dict[object, float] = field(default_factory=dict)
    descriptors: Factors = field(default_factory=Factors)
    halts: set[object] = field(default_factory=set)
    tcp: int = 0
    background: float = 0.0
    halted_s: float = 0.0
    out: dict[Transfer, None] = field(default_factory=dict)
    into: dict[Transfer, None] = field(default_factory=dict)
    sent_bytes: float = 0.0
    received_bytes: float = 0.0
    wait_ticks: float = 0.0


@dataclass(slots=True, eq=False)
class Link:
    """What is between one prefill and one decode worker."""

    rate: Factors = field(default_factory=Factors)
    cap: float = math.inf
    rtt_s: float = 0.0
    delay: dict[object, float] = field(default_factory=dict)
    lost: dict[object, float] = field(default_factory=dict)
    halts: set[object] = field(default_factory=set)
    halted_s: float = 0.0
    refuses: set[object] = field(default_factory=set)
    met: bool = False
    used_s: float = 0.0
    dead_until_s: float = 0.0


class Fabric:
    """All NICs and links.

    Args:
        spec: speeds.
        loop: for the time.
        rng: for retransmissions.
    """

    def __init__(self, spec: Network, loop: Loop, rng: random.Random) -> None:
        self._spec, self._loop, self._rng = spec, loop, rng
        self.nics: dict[str, Nic] = {}
        self.lossy = False
        self._links: dict[tuple[str, str], Link] = {}
        self.zone_rate, self.zone_delay = Factors(), dict[object, float]()
        self.drops: dict[object, tuple[float, float]] = {}
        self._refreshed_s = 0.0

    def add(self, worker: str, zone: Zone) -> None:
        """Give a worker its NIC."""
        self.nics[worker] = Nic(worker, zone)

    def link(self, src: str, dst: str) -> Link:
        """Return the link between two workers."""
        found = self._links.get((src, dst))
        if found is None:
            a, b = self.nics[src].zone, self.nics[dst].zone
            rtt_s, bound = self.rtt_s(a, b), self._bound(a, b)
            found = self._links[src, dst] = Link(
                cap=min(bound, self._spec.window_bytes / max(rtt_s, 1e-9)), rtt_s=rtt_s
            )
        return found

    def links(self) -> Iterable[tuple[tuple[str, str], Link]]:
        """Return the links in use so far."""
        return self._links.items()

    def rtt_s(self, a: Zone, b: Zone) -> float:
        """Return the round trip between two zones in seconds."""
        if a.name == b.name:
            return self._spec.rtt_s
        return self._spec.zone_rtt_s if a.region == b.region else self._spec.region_rtt_s

    def forget(self, worker: str) -> None:
        """Have every peer of a worker meet it again, as after a restart: no connection of before is left to be dead."""
        for (src, dst), link in self._links.items():
            if worker in (src, dst):
                link.met = False
                link.dead_until_s = 0.0

    def reachable(self, src: str, dst: str) -> bool:
        """Say whether anything passes between two workers now."""
        return not (self.nics[src].halts or self.nics[dst].halts or self.link(src, dst).halts)

    def unreachable_since_s(self, src: str, dst: str) -> float:
        """Return since when nothing passes, in virtual seconds; only while that is so."""
        sides = (self.nics[src], self.nics[dst], self.link(src, dst))
        return min(side.halted_s for side in sides if side.halts)

    def descriptors(self, dst: str, blocks: int) -> int:
        """Return how many descriptors a pull of so many blocks needs."""
        return math.ceil(blocks * self._spec.descriptors_per_block * self.nics[dst].descriptors.value)

    def pull(self, src: str, dst: str, size: float, descriptors: int, done: Callable[[], None]) -> Transfer:
        """Begin a transfer of `size` bytes; `done` is called when it has ended well."""
        link, a, b = self.link(src, dst), self.nics[src], self.nics[dst]
        wait_s = self._spec.setup_s + 2 * link.rtt_s + descriptors * self._spec.descriptor_s
        wait_s += sum(link.delay.values()) + sum(a.delay.values()) + sum(b.delay.values())
        if a.zone.name != b.zone.name:
            wait_s += 2 * sum(self.zone_delay.values())
        wait_s += self._dead_s(link, a)
        if not link.met:
            link.met = True
            wait_s += self.handshake_s(link)
        lost = self._lost(link, a, b)
        if lost and self._rng.random() < min(0.95, 10 * lost):
            wait_s += self._rng.expovariate(1.0 / (RETRY_S * (1 + 10 * lost)))
        transfer = Transfer(a, b, link, size, done)
        self._loop.at(self._loop.now + wait_s, self._begin, transfer)
        return transfer

    def handshake_s(self, link: Link) -> float:
        """Return what a first contact costs in seconds."""
        return self._spec.handshake_s + 3 * link.rtt_s

    def cancel(self, transfer: Transfer) -> None:
        """End a transfer without telling anybody."""
        if transfer.over:
            return
        transfer.over = True
        if transfer in transfer.src.out:
            self._progress(transfer)
            self._leave(transfer)

    def halt(self, what: Nic | Link, key: object, *, halted: bool) -> None:
        """Stop or let on all that passes a NIC or link; several reasons may hold at once."""
        if halted:
            if not what.halts:
                what.halted_s = self._loop.now
            what.halts.add(key)
        else:
            what.halts.discard(key)
        self.changed()

    def changed(self) -> None:
        """Take over what was changed on NICs and links."""
        for nic in self.nics.values():
            for transfer in nic.out:
                self._progress(transfer)
                self._set_rate(transfer)

    def refresh(self) -> None:
        """Count what moved up to now."""
        passed_s = self._loop.now - self._refreshed_s
        self._refreshed_s = self._loop.now
        for nic in self.nics.values():
            for transfer in nic.out:
                self._progress(transfer)
            if nic.background and not nic.halts:
                other = nic.background * passed_s * self._spec.nic_bytes_per_s * nic.rate.value
                nic.sent_bytes += other
                nic.received_bytes += other
                nic.wait_ticks += nic.background * passed_s * 1e6

    def lost_share(self, nic: Nic) -> float:
        """Return the share of packets that a NIC loses (0-1), the mean over its links where only some do."""
        own = 1.0 - math.prod(1.0 - p for p in nic.lost.values())
        if not self.lossy:
            return own
        links = [link for ends, link in self._links.items() if nic.worker in ends]
        some = [1.0 - math.prod(1.0 - p for p in link.lost.values()) for link in links if link.lost]
        return own + (sum(some) / len(links) if some else 0.0)

    def _dead_s(self, link: Link, src: Nic) -> float:
        """Return how long nothing passes a connection that was dropped while idle: until its ends have noticed."""
        now = self._loop.now
        if self.drops and link.met and not any(t.link is link for t in src.out):
            for idle_s, stall_s in self.drops.values():
                if now - link.used_s > idle_s:
                    link.dead_until_s = max(link.dead_until_s, now + stall_s)
        link.used_s = max(now, link.dead_until_s)
        return link.used_s - now

    def _begin(self, transfer: Transfer) -> None:
        if transfer.over:
            return
        transfer.at_s = self._loop.now
        transfer.src.out[transfer] = None
        transfer.dst.into[transfer] = None
        self._share(transfer)

    def _share(self, changed: Transfer) -> None:
        """Share both ends anew after a transfer came or went."""
        others = {**changed.src.out, **changed.dst.into}
        for transfer in others:
            self._progress(transfer)
            self._set_rate(transfer)

    def _progress(self, transfer: Transfer) -> None:
        now = self._loop.now
        moved = min(transfer.left, transfer.rate * (now - transfer.at_s))
        transfer.at_s = now
        transfer.left -= moved
        transfer.src.sent_bytes += moved
        transfer.dst.received_bytes += moved

    def _set_rate(self, transfer: Transfer) -> None:
        src, dst, link = transfer.src, transfer.dst, transfer.link
        if src.halts or dst.halts or link.halts:
            transfer.rate = 0.0
            return
        full = self._spec.nic_bytes_per_s
        rate = min(
            full * src.rate.value * (1.0 - src.background) / len(src.out),
            full * dst.rate.value * (1.0 - dst.background) / len(dst.into),
            link.cap * (self.zone_rate.value if src.zone.name != dst.zone.name else 1.0),
        )
        if src.zone.name != dst.zone.name:
            rate = min(rate, full * self.zone_rate.value)
        rate = min(rate, full * link.rate.value) if link.rate.value < 1.0 else rate
        lost = self._lost(link, src, dst)
        if lost:
            rate /= 1.0 + LOSS_SCALE * lost**LOSS_POWER
        transfer.rate = rate
        end_s = self._loop.now + transfer.left / rate
        if end_s < transfer.due_s:
            transfer.due_s = end_s
            self._loop.at(end_s, self._due, transfer, end_s)

    def _due(self, transfer: Transfer, due_s: float) -> None:
        if transfer.over or due_s != transfer.due_s:
            return
        self._progress(transfer)
        if transfer.left > _DONE_BYTES and self._loop.now + transfer.left / max(transfer.rate, 1e-9) > self._loop.now:
            transfer.due_s = math.inf
            if transfer.rate:
                self._set_rate(transfer)
            return
        transfer.src.sent_bytes += transfer.left
        transfer.dst.received_bytes += transfer.left
        transfer.left = 0.0
        transfer.over = True
        transfer.link.used_s = self._loop.now
        self._leave(transfer)
        transfer.done()

    def _leave(self, transfer: Transfer) -> None:
        transfer.src.out.pop(transfer, None)
        transfer.dst.into.pop(transfer, None)
        self._share(transfer)

    def _bound(self, a: Zone, b: Zone) -> float:
        if a.name == b.name:
            return math.inf
        own = self._spec.zone_bytes_per_s if a.region == b.region else self._spec.region_bytes_per_s
        return math.inf if own is None else own

    def _lost(self, link: Link, src: Nic, dst: Nic) -> float:
        if not (link.lost or src.lost or dst.lost):
            return 0.0
        kept = 1.0
        for side in (link, src, dst):
            for share in side.lost.values():
                kept *= 1.0 - share
        return 1.0 - kept


def packets(size: float) -> float:
    """Return how many RDMA packets carry so many bytes."""
    return size / _PACKET_BYTES


def segments(size: float) -> float:
    """Return how many TCP segments carry so many bytes."""
    return size / _SEGMENT_BYTES
