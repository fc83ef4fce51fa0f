"""Workers that are away, or were, by plan: a rollout takes one after another and brings each back, while the others serve."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pdops.diagnose.context import Context
from pdops.diagnose.symptoms import picture
from pdops.model.cluster import Role
from pdops.model.frame import EventKind
from pdops.model.report import Symptom
from pdops.model.series import Series

SILENT_INTERVALS = 3.0
"""Scrape intervals without a sample after which data count as missing, so that one lost scrape is no outage."""
ROLLS_S = 300.0
"""A rollout goes on to its next worker within this time, once the last one has loaded its weights and is warm."""
APART_S = 5.0
"""Workers that begin anew within this time of each other ended together."""
LONGER = 2.0
"""Times as long as the slowest start seen here after which a worker does not start but stays away."""
_TAKES_AWAY = (EventKind.ROLLOUT, EventKind.SCALE_IN)
"""Plans that a worker which does not answer is part of; after other changes it is meant to be there."""
_ANEW = (EventKind.RESTART, EventKind.ROLLOUT)


def silences(ctx: Context, worker: str) -> tuple[tuple[float, float], ...]:
    """Return when a worker fell silent and when it was heard again, in Unix seconds, the oldest first."""
    # A written case gives a sample only where something changes.
    for _, series in () if ctx.view.relative else ctx.ask.parts(worker, "running_requests"):
        times = series.t if isinstance(series, Series) else series.sum_t
        ends = np.flatnonzero(np.diff(times) > SILENT_INTERVALS * ctx.view.interval_s) + 1
        if len(ends):
            return tuple((float(times[i - 1]), float(times[i])) for i in ends)
    return ()


def away_by_plan(ctx: Context, worker: str) -> bool:
    """Whether a worker that does not answer was taken away by plan, and not for longer than a start takes here.

    Without word of a plan, workers of its pool that were just begun anew, one after another and known to do no harm, are one.
    """
    since_s = ctx.health(worker).since_s
    told = ctx.events(_TAKES_AWAY, worker=worker)
    if not told and (not _rolled(ctx, worker) or not _harmless(ctx)):
        return False
    if told and told[0].kind is EventKind.SCALE_IN:
        return True
    begun_s = told[0].t_s if told else since_s
    return begun_s is not None and ctx.view.at_s - begun_s <= _patience(ctx, worker)


def _harmless(ctx: Context) -> bool:
    """Whether failures are known and nothing hurts: what nobody counts may be what an outage did."""
    seen = picture(ctx)
    return seen.errors.known and not set(seen.symptoms) - {Symptom.SKEW, Symptom.STARTUP}


def _rolled(ctx: Context, worker: str) -> bool:
    """Whether others of a worker's pool were just replaced or begun anew, one at a time, and serve again."""
    known = ctx.cluster.get(worker)
    if known is None:
        return False
    others = [w.id for w in ctx.cluster.of_pool(known.pool) if w.id != worker]
    begun = sorted(e[0].t_s for w in others if (e := ctx.events(_ANEW, within_s=ROLLS_S, worker=w)))
    together = any(b - a < APART_S for a, b in pairwise(begun))
    return bool(begun) and not together and not any(ctx.is_down(w) for w in others)


def came_s(ctx: Context, worker: str) -> float | None:
    """Return when a worker was last begun anew or heard again, in Unix seconds, or None when it was there all the time."""
    known = [
        *(e.t_s for e in ctx.events((*_ANEW, EventKind.SCALE_OUT), worker=worker)[:1]),
        *(end for _, end in silences(ctx, worker)[-1:]),
    ]
    return max(known, default=None)


def _patience(ctx: Context, worker: str) -> float:
    known = ctx.cluster.get(worker)
    peers = ctx.cluster.of_pool(known.pool) if known is not None and known.role is not Role.ROUTER else ()
    slack_s = SILENT_INTERVALS * ctx.view.interval_s
    took = [
        end - start
        for w in peers
        for start, end in silences(ctx, w.id)
        if any(start - slack_s <= e.t_s <= end + slack_s for e in ctx.events(_ANEW, worker=w.id))
    ]
    return min(ROLLS_S, LONGER * max(took)) if took else ROLLS_S
