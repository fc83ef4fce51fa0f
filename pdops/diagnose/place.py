"""Name the place of a fault: k of n workers or pairs that deviate say whether it is one link, worker, node, zone or pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pdops.diagnose.context import Context
from pdops.model.cluster import Pair, Worker
from pdops.model.report import Scope


def place(ctx: Context, scopes: Iterable[Scope]) -> tuple[Scope, ...]:
    """Return scopes with whole rows, columns, nodes, zones and pools named as such; the cluster where none is given.

    Pairs that are all those of one receiver or sender become that worker. Workers that are all of a pool, node or zone
    become it, the smaller first; a node or zone is named only where others exist.
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
    known = sorted({*ctx.view.pairs(), *accused})
    bad = set(accused)
    senders, receivers = {p.src for p in known}, {p.dst for p in known}
    if len(bad) == len(known) and min(len(senders), len(receivers)) > 1:
        return [Scope("global", ctx.cluster.name)]
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


def _src(pair: Pair) -> str:
    return pair.src


def _dst(pair: Pair) -> str:
    return pair.dst


def _fold_workers(ctx: Context, accused: list[str]) -> list[Scope]:
    bad = set(accused)
    if len(bad) < 2:
        return [Scope("worker", w) for w in accused]
    kinds: tuple[tuple[str, Callable[[Worker], str | None]], ...] = (
        ("node", lambda w: w.node),
        ("zone", lambda w: w.zone),
        ("pool", lambda w: w.pool),
    )
    found: list[Scope] = []
    for kind, of in kinds:
        groups: dict[str, set[str]] = {}
        for worker in ctx.cluster.workers:
            name = of(worker)
            if name is not None:
                groups.setdefault(name, set()).add(worker.id)
        whole = [name for name, members in groups.items() if len(members) > 1 and members <= bad]
        if kind != "pool" and (len(groups) < 2 or set().union(*(groups[n] for n in whole)) != bad):
            continue
        found += [Scope(kind, name) for name in whole]  # type: ignore[arg-type]
        if set().union(*(groups[n] for n in whole)) == bad:
            break
    covered = {w for s in found for w in _members(ctx, s)}
    return [*found, *(Scope("worker", w) for w in accused if w not in covered)]


def _members(ctx: Context, scope: Scope) -> set[str]:
    return {w.id for w in ctx.cluster.workers if scope.id == {"node": w.node, "zone": w.zone}.get(scope.kind, w.pool)}
