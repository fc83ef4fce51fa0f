"""Which pair a request goes to, by the router's policy."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

from pdops.model.cluster import Role
from pdops.sim.records import RequestRecord

BOUND = 1.25
"""A preferred worker is passed over at this many times the mean load, as pdops' router does."""


@dataclass(slots=True, eq=False)
class Seat:
    """A worker as the router sees it. `shown` is the load it decides on, which is `inflight` unless that is stale."""

    id: str
    role: Role
    zone: str
    inflight: int = 0
    shown: int = 0
    up: bool = True
    cordoned: bool = False
    ejected: bool = False

    @property
    def routable(self) -> bool:
        """Whether it may get requests."""
        return self.up and not self.cordoned and not self.ejected


class Policy:
    """Chooses pairs.

    Args:
        name: round-robin, least-loaded, prefix-affinity or zone-aware.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.stale = False
        self.far = False
        self._turn = 0
        self._ranks: dict[tuple[int, str], bytes] = {}

    def pick(
        self, prefills: Sequence[Seat], decodes: Sequence[Seat], record: RequestRecord
    ) -> tuple[Seat | None, Seat]:
        """Return a pair; no prefill when there are none to choose from."""
        prefill = self._prefill(prefills, record) if prefills else None
        decode = self._decode(decodes, prefill, record, max(1, len(prefills)))
        self._turn += 1
        return prefill, decode

    def _prefill(self, seats: Sequence[Seat], record: RequestRecord) -> Seat:
        if self.name == "round-robin":
            return seats[self._turn % len(seats)]
        if self.name == "zone-aware":
            return self._least(_near(seats, record.zone))
        if self.name == "prefix-affinity":
            return self._affine(seats, record.group)
        return self._least(seats)

    def _decode(self, seats: Sequence[Seat], prefill: Seat | None, record: RequestRecord, prefills: int) -> Seat:
        zone = prefill.zone if prefill is not None else record.zone
        if self.far:
            return self._least([s for s in seats if s.zone != zone] or seats)
        if self.name == "round-robin":
            # Equal pool sizes would otherwise meet in the same pairs for ever.
            return seats[(self._turn + self._turn // lcm(len(seats), prefills)) % len(seats)]
        return self._least(_near(seats, zone) if self.name == "zone-aware" else seats)

    def _load(self, seat: Seat) -> int:
        return seat.shown if self.stale else seat.inflight

    def _least(self, seats: Sequence[Seat]) -> Seat:
        loads = [s.shown for s in seats] if self.stale else [s.inflight for s in seats]
        fewest = min(loads)
        count = loads.count(fewest)
        wanted = self._turn % count
        at = -1
        for _ in range(wanted + 1):
            at = loads.index(fewest, at + 1)
        return seats[at]

    def _affine(self, seats: Sequence[Seat], group: int) -> Seat:
        loads = [self._load(s) for s in seats]
        limit = max(1.0, BOUND * (sum(loads) + 1) / len(seats))
        best: Seat | None = None
        first: Seat | None = None
        best_rank = first_rank = b""
        for seat, load in zip(seats, loads, strict=True):
            rank = self._rank(group, seat.id)
            if rank > first_rank:
                first, first_rank = seat, rank
            if load + 1 <= limit and rank > best_rank:
                best, best_rank = seat, rank
        found = best or first
        assert found is not None
        return found

    def _rank(self, group: int, worker: str) -> bytes:
        rank = self._ranks.get((group, worker))
        if rank is None:
            if len(self._ranks) > 1 << 18:
                self._ranks.clear()
            rank = hashlib.blake2b(f"{worker}\0{group}".encode(), digest_size=8).digest()
            self._ranks[group, worker] = rank
        return rank


def _near(seats: Sequence[Seat], zone: str) -> Sequence[Seat]:
    return [s for s in seats if s.zone == zone] or seats
