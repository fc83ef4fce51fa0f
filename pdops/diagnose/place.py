"""Name the place of a fault: k of n workers or pairs that deviate say whether it is one link, worker, node, zone or pool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pdops.diagnose.context import Context
from pdops.model.cluster import Pair
from pdops.model.report import Scope


def place(ctx: Context, scopes: Iterable[Scope]) -> tuple[Scope, ...]:
    """Return scopes with whole rows, columns, nodes, zones and pools named as such; the cluster where none is given.

    Pairs that are all those of one receiver or sender become that worker. Workers that are all of one pool become it,
    those that are all of a node or a zone become that; where both fit, both are named.
    """
    given = tuple(dict.fromkeys(scopes))
    if not given:
        return (Scope("global", ctx.cluster.name),)
    pairs = [Pair.parse(s.id) for s in given if s.kind == "pair"]
    folded = _fold_pairs(ctx, pairs) if len(pairs) > 1 else [s for s in given if s.kind == "pair"]
    workers = [s.id for s in given if s.kind == "worker"]
    rest = [s for s in given if s.kind not in ("pair", "worker")]
    named = (*_fold_workers(ctx, workers), *folded, *rest)
    return tuple(dict.fromkeys(named))


def _fold_pairs(ctx: Context, accused: list[Pair]) -> list[Scope]:
    known = sorted({*ctx.pairs, *accused})
    bad = set(accused)
    senders, receivers = {p.src for p in known}, {p.dst for p in known}
    if len(bad) == len(known) and min(len(senders), len(receivers)) > 1:
        return [Scope("global", ctx.cluster.name)]
    zones = _crossed(ctx, known, bad)
    if zones:
        return zones
    guilty: set[str] = set()
    for ends, other in ((_dst, _src), (_src, _dst)):
        line: dict[str, list[Pair]] = {}
        for pair in known:
            line.setdefault(ends(pair), []).append(pair)
        sound_elsewhere = {other(p) for p in known if p not in bad}
        for worker, mine in line.items():
            whole = len(mine) > 1 and all(p in bad for p in mine)
            # Where the partners are slow with everybody, they are the ones.
            if whole and (len(line) == 1 or any(other(p) in sound_elsewhere for p in mine)):
                guilty.add(worker)
    left = [p for p in sorted(bad) if p.src not in guilty and p.dst not in guilty]
    return [*(Scope("worker", w) for w in sorted(guilty)), *(Scope("pair", str(p)) for p in left)]


def _crossed(ctx: Context, known: list[Pair], bad: set[Pair]) -> list[Scope]:
    """Return the zones between which the accused pairs run, if these are most pairs across zones and none inside one."""
    zone = {w.id: w.zone for w in ctx.cluster.workers if w.zone is not None}
    across = {p for p in known if zone.get(p.src) and zone.get(p.dst) and zone[p.src] != zone[p.dst]}
    ends = len({p.src for p in bad}), len({p.dst for p in bad})
    if not bad <= across or 2 * len(bad) <= len(across) or min(ends) < 2:
        return []
    between = {zone[end] for p in bad for end in (p.src, p.dst)}
    if between == set(zone.values()):
        return [Scope("global", ctx.cluster.name)]
    return [Scope("zone", name) for name in sorted(between)]


def _src(pair: Pair) -> str:
    return pair.src


def _dst(pair: Pair) -> str:
    return pair.dst


def _fold_workers(ctx: Context, accused: list[str]) -> list[Scope]:
    bad = frozenset(accused)
    if len(bad) < 2:
        return [Scope("worker", w) for w in accused]
    # A node or a zone is a place of its own only where others are sound.
    exact = [
        s
        for kind in ("node", "zone")
        for s, members in _groups(ctx, kind).items()
        if members == bad and len(_groups(ctx, kind)) > 1
    ]
    pools = [s for s, members in _groups(ctx, "pool").items() if len(members) > 1 and members <= bad]
    covered = {w for s in pools for w in _groups(ctx, "pool")[s]}
    if exact and not (len(pools) == 1 and covered == bad):
        return exact
    return [*pools, *exact, *(Scope("worker", w) for w in accused if w not in covered)]


def _groups(ctx: Context, kind: Literal["node", "zone", "pool"]) -> dict[Scope, frozenset[str]]:
    found: dict[Scope, set[str]] = {}
    for worker in ctx.cluster.workers:
        name = {"node": worker.node, "zone": worker.zone, "pool": worker.pool}[kind]
        if name is not None:
            found.setdefault(Scope(kind, name), set()).add(worker.id)
    return {scope: frozenset(members) for scope, members in found.items()}
