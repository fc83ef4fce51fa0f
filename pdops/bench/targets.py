"""Whom a fault hits: the words of `kinds.yaml` made into names of workers, pairs and zones, drawn by seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from pdops.errors import CatalogError
from pdops.model.cluster import Cluster, Pair
from pdops.model.report import Scope, ScopeKind

SHARE = "share"
FEW = "few"
FEW_SHARE = 1 / 6
EVERYTHING = "all"
CHOSEN = "chosen"
HOTTEST = "hottest"
_PLACES = ("pool", "global")
"""Scopes of which a kind may list several that are right each by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Who is there to be hit."""

    prefill: tuple[str, ...]
    decode: tuple[str, ...]
    zones: tuple[str, ...]
    router: str = "router-0"
    store: str = "store-0"


def draw(word: str | None, params: Mapping[str, float | str], names: Names, rng: Random) -> tuple[str, ...]:
    """Return the names that a `targets` word stands for; nothing for a fault of the whole cluster's load.

    Raises:
        CatalogError: the word is not one of those the file explains.
    """
    if word is None:
        return ()
    if word == EVERYTHING:
        return (EVERYTHING,)
    if word in ("router", "store"):
        return (getattr(names, word),)
    if word == "pair":
        return (str(Pair(rng.choice(names.prefill), rng.choice(names.decode))),)
    if word == "zone-pair":
        return tuple(rng.sample(names.zones, 2))
    if word == "zone":
        drawn, zones = rng.randrange(len(names.zones)), len(names.zones)
        return names.prefill[drawn::zones] + names.decode[drawn::zones]
    role, _, part = word.partition(":")
    if role not in ("prefill", "decode"):
        raise CatalogError("benchmark file cannot be used", why=f"unknown targets {word!r}", hint="see kinds.yaml")
    pool: tuple[str, ...] = getattr(names, role)
    if not part:
        return (rng.choice(pool),)
    if part == EVERYTHING:
        return pool
    share = FEW_SHARE if part == FEW else float(params[SHARE] if part == SHARE else part)
    count = max(1, min(len(pool) - 1, math.floor(share * len(pool) + (0.0 if part == FEW else 0.5))))
    return tuple(sorted(rng.sample(pool, count), key=pool.index))


def consumes_share(word: str | None) -> bool:
    """Whether a `targets` word uses up the severity's share, so that the primitive does not get it."""
    return word is not None and word.endswith(f":{SHARE}")


def scopes(
    templates: Sequence[Mapping[ScopeKind, str]], chosen: Sequence[str], hottest: str | None, names: Names
) -> tuple[Scope, ...]:
    """Return the right scopes of an episode.

    Where a fault hit some workers, pairs or zones, those together are the one right place, whatever else a kind lists. A
    service that all share may also be called by the whole cluster, if its kind says so; never by a pool.
    """
    put: list[Scope] = []
    rest: list[Scope] = []
    for template in templates:
        for kind, name in template.items():
            if name == CHOSEN:
                put.extend(Scope(kind, c) for c in chosen)
            elif name == HOTTEST:
                put.extend([Scope(kind, hottest)] if hottest is not None else [])
            else:
                rest.append(Scope(kind, name))
    if put:
        shared = all(s.id in (names.router, names.store) for s in put)
        rest = [s for s in rest if shared and s.kind == "global"]
    return tuple(dict.fromkeys((*put, *rest)))


def covered(scope: Scope, cluster: Cluster) -> frozenset[str]:
    """Return the workers a scope is about, so that `pool prefill` of one worker and that worker are the same answer."""
    if scope.kind == "pair":
        pair = Pair.parse(scope.id)
        return frozenset((pair.src, pair.dst))
    if scope.kind == "pool":
        return frozenset(w.id for w in cluster.of_pool(scope.id))
    if scope.kind == "zone":
        return frozenset(w.id for w in cluster.workers if w.zone == scope.id)
    if scope.kind == "node":
        return frozenset(w.id for w in cluster.workers if w.node == scope.id)
    if scope.kind == "global":
        return frozenset(w.id for w in cluster.workers)
    return frozenset((scope.id,))


def same_place(named: Sequence[Scope], right: Sequence[Scope], cluster: Cluster) -> bool:
    """Whether what was named is a right place: both have more than half of all workers that either names in common.

    So one of two hit workers is not enough, nor is the pool of which less than half is hit. Workers, pairs or zones of the
    right scopes are one place together; pools and the whole cluster are each a place of its own.
    """
    said = frozenset[str]().union(*(covered(s, cluster) for s in named))
    return any(2 * len(said & place) > len(said | place) for place in _places(right, cluster))


def _places(right: Sequence[Scope], cluster: Cluster) -> list[frozenset[str]]:
    alone = [covered(s, cluster) for s in right if s.kind in _PLACES]
    together = {s.kind for s in right if s.kind not in _PLACES}
    return alone + [
        frozenset[str]().union(*(covered(s, cluster) for s in right if s.kind == kind)) for kind in sorted(together)
    ]
