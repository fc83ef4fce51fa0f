"""How many workers a pool has and is asked for, over time."""

from __future__ import annotations

import numpy as np

from pdops.diagnose.context import Context
from pdops.model.cluster import POOL_PREFIX
from pdops.model.frame import Event, EventKind
from pdops.model.series import Floats, Series

WANTED = "pool_replicas_wanted"
THERE = "pool_replicas"
_MIN_SAMPLES = 3
_RECENT_S = 900.0
_TOGETHER_S = 15.0
"""Workers that come or go within this time do so by one decision; autoscalers decide every 15 to 30 s."""


def column(ctx: Context, key: str, signal: str) -> tuple[Floats, Floats] | None:
    """Return times (Unix seconds) and numbers of workers of a pool key up to now, or None when nobody gives them."""
    for series in ctx.view.series.get((key, signal), ()):
        seen = series.t <= ctx.view.at_s
        if isinstance(series, Series) and seen.any():
            return series.t[seen], series.v[seen]
    return None


def changes(ctx: Context, key: str) -> tuple[str, tuple[float, ...]] | None:
    """Return every change of the wanted size, else of the present one, else of scale events, in order of time.

    The first part names the signal; None when there is none of the three.
    """
    for signal in (WANTED, THERE):
        seen = column(ctx, key, signal)
        if seen is not None and len(seen[1]) >= _MIN_SAMPLES:
            steps = np.diff(seen[1])
            return signal, tuple(float(s) for s in steps[steps != 0])
    events = ctx.events((EventKind.SCALE_OUT, EventKind.SCALE_IN), within_s=_RECENT_S)
    touching = [e for e in events if _of_pool(ctx, e, key.removeprefix(POOL_PREFIX))]
    if not touching:
        return None
    moves: list[tuple[float, float]] = []
    for event in reversed(touching):
        sign = 1.0 if event.kind is EventKind.SCALE_OUT else -1.0
        if moves and event.t_s - moves[-1][0] < _TOGETHER_S and moves[-1][1] * sign > 0:
            moves[-1] = (event.t_s, moves[-1][1] + sign)
        else:
            moves.append((event.t_s, sign))
    return THERE, tuple(step for _, step in moves)


def missing_throughout(ctx: Context, key: str) -> tuple[float, float] | None:
    """Return (there, wanted) when fewer workers were there than wanted all the time that is known, else None."""
    wanted, there = column(ctx, key, WANTED), column(ctx, key, THERE)
    if wanted is None or there is None or float(there[1].max()) >= float(wanted[1].min()):
        return None
    return float(there[1][-1]), float(wanted[1][-1])


def _of_pool(ctx: Context, event: Event, pool: str) -> bool:
    worker = ctx.cluster.get(event.worker) if event.worker is not None else None
    return event.pool == pool or (worker is not None and worker.pool == pool)
