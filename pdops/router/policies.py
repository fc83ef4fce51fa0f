"""Choose the pair for a request, among workers that are up and have room. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import lcm
from typing import Protocol, TypeVar

BOUND = 1.25
"""A preferred worker is passed over once it has this many times the mean load (consistent hashing with bounded loads)."""


class Candidate(Protocol):
    """What a policy may look at."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def zone(self) -> str | None:
        """Its zone."""
        ...

    @property
    def inflight(self) -> int:
        """Legs it has now."""
        ...


C = TypeVar("C", bound=Candidate)


class Policy:
    """Round-robin: every pair in turn, over all combinations; the base of the others.

    Args:
        zone: the router's own zone.
    """

    def __init__(self, zone: str | None = None) -> None:
        self.zone = zone
        self._turn = 0

    def pick(self, prefills: Sequence[C], decodes: Sequence[C], key: str) -> tuple[C | None, C]:
        """Return a pair; the first is None when there are no prefill candidates. `key` is the start of the prompt."""
        prefill = self.prefill(prefills, key) if prefills else None
        decode = self.decode(decodes, prefill, max(1, len(prefills)))
        self._turn += 1
        return prefill, decode

    def prefill(self, candidates: Sequence[C], key: str) -> C:  # noqa: ARG002  others look at it
        """Return the prefill worker."""
        return candidates[self._turn % len(candidates)]

    def decode(self, candidates: Sequence[C], prefill: C | None, prefills: int) -> C:  # noqa: ARG002  others look at it
        """Return the decode worker for that prefill worker, one of `prefills` candidates."""
        # Equal pool sizes would otherwise meet in the same pairs for ever.
        shift = self._turn // lcm(len(candidates), prefills)
        return candidates[(self._turn + shift) % len(candidates)]

    def least(self, candidates: Sequence[C]) -> C:
        """Return the one with the fewest legs, in turn among equals."""
        fewest = min(c.inflight for c in candidates)
        equal = [c for c in candidates if c.inflight == fewest]
        return equal[self._turn % len(equal)]


class LeastLoaded(Policy):
    """The worker with the fewest legs, on each side."""

    def prefill(self, candidates: Sequence[C], key: str) -> C:  # noqa: ARG002  the load alone decides
        """Return the one with the fewest legs."""
        return self.least(candidates)

    def decode(self, candidates: Sequence[C], prefill: C | None, prefills: int) -> C:  # noqa: ARG002  the load decides
        """Return the one with the fewest legs."""
        return self.least(candidates)


class PrefixAffinity(LeastLoaded):
    """Equal starts of a prompt go to the same prefill worker, whose prefix cache knows them; decode by load.

    Rendezvous hashing: a worker that joins or leaves moves only its own share.
    """

    def prefill(self, candidates: Sequence[C], key: str) -> C:
        """Return the worker this start of a prompt belongs to, or the next one with room to spare."""
        if not key:
            return self.least(candidates)
        ranked = sorted(candidates, key=lambda c: _weight(key, c.id), reverse=True)
        limit = BOUND * (sum(c.inflight for c in candidates) + 1) / len(candidates)
        return next((c for c in ranked if c.inflight + 1 <= max(1.0, limit)), ranked[0])


class ZoneAware(LeastLoaded):
    """Prefill in the router's zone, decode in prefill's zone, so that KV crosses no zone while there is room."""

    def prefill(self, candidates: Sequence[C], key: str) -> C:  # noqa: ARG002  zone and load decide
        """Return the one with the fewest legs in the router's zone."""
        return self.least(_near(candidates, self.zone))

    def decode(self, candidates: Sequence[C], prefill: C | None, prefills: int) -> C:  # noqa: ARG002  zone and load decide
        """Return the one with the fewest legs in prefill's zone."""
        return self.least(_near(candidates, prefill.zone if prefill else self.zone))


def policy(name: str, zone: str | None = None) -> Policy:
    """Return the policy of that name.

    Raises:
        KeyError: there is none.
    """
    kinds = {
        "round-robin": Policy,
        "least-loaded": LeastLoaded,
        "prefix-affinity": PrefixAffinity,
        "zone-aware": ZoneAware,
    }
    return kinds[name](zone)


def _near(candidates: Sequence[C], zone: str | None) -> Sequence[C]:
    return [c for c in candidates if zone is not None and c.zone == zone] or candidates


def _weight(key: str, worker: str) -> bytes:
    return hashlib.blake2b(f"{worker}\0{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
