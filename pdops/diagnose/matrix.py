"""What the matrix of pairs adds to a finding about workers: which pair of theirs is slow or silent."""

from __future__ import annotations

from collections.abc import Sequence

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.model.cluster import Pair
from pdops.model.report import Scope
from pdops.stats.robust import median

APART = 2.0
"""A pair that takes this many times as long as the typical pair stands apart: half the speed, as for any link."""
EXPECTED = 8.0
"""Hand-offs that a pair should have had by its former rate; none is then no chance (Poisson: 3 in 10,000)."""
_SIGNAL = "handoff_seconds"


def narrowed(ctx: Context, units: Sequence[str]) -> tuple[Scope, ...]:
    """Return slow units as scopes, a worker as the pair that is slow where its other pairs are not."""
    took = {p: v for p in ctx.pairs_with(_SIGNAL) if (v := ctx.ask.mean(p.key, _SIGNAL).value) is not None}
    usual = median(list(took.values()))
    found: list[Scope] = []
    for unit in units:
        mine = [p for p in took if unit in (p.src, p.dst)]
        slow = [p for p in mine if usual and took[p] > APART * usual]
        lone = len(mine) > 1 and 0 < len(slow) < len(mine)
        found += [ctx.scope(p.key) for p in slow] if lone else [ctx.scope(unit)]
    return tuple(dict.fromkeys(found))


def silent(ctx: Context) -> tuple[Pair, ...]:
    """Return pairs over which hand-offs ended before and none does now, by what the router counts of each.

    A pair whose sender or receiver is silent altogether is left out where there are others to tell by.
    """
    told = [p for p in ctx.pairs_with(_SIGNAL) if ctx.ask.has(p.key, _SIGNAL)]
    now = {p: ctx.ask.increase(p.key, _SIGNAL).value for p in told}
    lively = [p for p, n in now.items() if n]
    still = [
        p
        for p, n in now.items()
        if n == 0.0 and (past.rate(ctx, p.key, _SIGNAL) or 0.0) * ctx.view.now.span_s >= EXPECTED
    ]
    if not lively:
        return tuple(still) if len(now) == 1 else ()
    senders, receivers = {p.src for p in lively}, {p.dst for p in lively}
    one_sender, one_receiver = len({p.src for p in now}) == 1, len({p.dst for p in now}) == 1
    return tuple(p for p in still if (p.src in senders or one_sender) and (p.dst in receivers or one_receiver))
