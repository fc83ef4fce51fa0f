"""A fixed list of numbers about one instant, made of the same table that the other baselines read; for learnt methods."""

from __future__ import annotations

import warnings

import numpy as np

from pdops.bench.baselines.scoring import FLOOR, FLOOR_RATIO, Moves
from pdops.bench.table import METRICS, Table
from pdops.model.series import Floats
from pdops.model.view import View

_GROUPS = ("client", "router", "prefill", "decode", "kvstore", "pair")
_STATS = ("shift", "worst", "moved")
_FAR = 4.0
_CLIP = 50.0
_ABSOLUTE = (("prefill", "kv_cache_usage"), ("decode", "kv_cache_usage"), ("prefill", "prefix_hit_ratio"))

NAMES: tuple[str, ...] = (
    *(f"{group}.{metric}.{stat}" for group in _GROUPS for metric in METRICS for stat in _STATS),
    *(f"{group}.{metric}.level" for group, metric in _ABSOLUTE),
    "ttft_over_slo",
    "itl_over_slo",
)
"""Per group and metric: the median move of its entities, the worst one, and the share that moved far, all in
interquartile ranges of the time before; then some levels as they are, and latency over what is promised."""


def moves(table: Table, view: View) -> Moves:
    """Return how far the mean of the judged window lies from the base window of the View, row by row."""
    now = table.between(view.now.start_s, view.at_s)
    base = view.base
    before = table.between(base.start_s, base.end_s) if base is not None else now[:, :0]
    if before.shape[1] == 0:
        return Moves(table, np.full(len(table.rows), np.nan))
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        low, centre, high = np.nanpercentile(before, (25, 50, 75), axis=1)
        mean = np.nanmean(now, axis=1)
    spread = np.maximum(high - low, np.maximum(np.abs(centre) * FLOOR_RATIO, FLOOR))
    return Moves(table, (mean - centre) / spread)


def vector(moved: Moves, view: View) -> tuple[float, ...]:
    """Return the numbers of `NAMES`; NaN where nothing is known."""
    out: list[float] = []
    for group in _GROUPS:
        for metric in METRICS:
            out.extend(_stats(moved.score[list(moved.table.places.get((group, metric), ()))]))
    now = moved.table.between(view.now.start_s, view.at_s)
    for group, metric in _ABSOLUTE:
        out.append(_mean(now[list(moved.table.places.get((group, metric), ()))]))
    for signal, promised in (("ttft_seconds", view.cluster.slo.ttft_s), ("itl_seconds", view.cluster.slo.itl_s)):
        level = _mean(now[list(moved.table.places.get(("client", signal), ()))])
        out.append(level / promised if promised else float("nan"))
    return tuple(round(v, 4) for v in out)


def _stats(scores: Floats) -> tuple[float, float, float]:
    known = scores[~np.isnan(scores)]
    if not len(known):
        nan = float("nan")
        return nan, nan, nan
    worst = known[np.argmax(np.abs(known))]
    shift, far = float(np.median(known)), float(np.mean(np.abs(known) > _FAR))
    return float(np.clip(shift, -_CLIP, _CLIP)), float(np.clip(worst, -_CLIP, _CLIP)), far


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.mean(known)) if len(known) else float("nan")
