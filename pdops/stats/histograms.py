"""Growth and quantiles of cumulative histograms, with bounds where the truth is outside the edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pdops.model.series import Floats, HistogramSeries
from pdops.stats.counters import span


@dataclass(frozen=True, slots=True, eq=False)
class Growth:
    """Events of a histogram in a window.

    `counts` (m,) are cumulative over the edges `bounds` (m,), or None when no two bucket samples exist. `total` events
    with a `sum`; `sum` None with a reason in `why` when it is corrupt or not known. `span_s` is the time they took.
    """

    bounds: Floats
    counts: Floats | None
    total: float
    sum: float | None
    span_s: float
    why: str | None = None

    @property
    def mean(self) -> float | None:
        """Mean value of the events, or None."""
        return self.sum / self.total if self.sum is not None and self.total > 0 else None


def growth(series: HistogramSeries, start_s: float, end_s: float) -> Growth | None:
    """Return the events of a window, or None when its totals are not known.

    A total that falls is a restart from zero. A sum that falls while its total does not is corrupt: the sum is then
    unknown, the counts stay usable. vLLM 0.32 was seen to do this to request_queue_time_seconds after failed KV loads.
    """
    grown = totals(series, start_s, end_s)
    return None if grown is None else with_buckets(grown, series, start_s, end_s)


def totals(series: HistogramSeries, start_s: float, end_s: float) -> Growth | None:
    """Return the same without buckets, which few questions need; a histogram of rates comes whole."""
    if series.rate:
        return _rate_growth(series, start_s, end_s)
    part = span(series.sum_t, start_s, end_s)
    if part is None:
        return None
    times, counted, sums = series.sum_t[part], series.total[part], series.sum[part]
    steps, sum_steps = counted[1:] - counted[:-1], sums[1:] - sums[:-1]
    reset, corrupt = steps < 0, sum_steps < -1e-9
    if np.count_nonzero(reset):
        corrupt &= ~reset
        steps, sum_steps = np.where(reset, counted[1:], steps), np.where(reset, sums[1:], sum_steps)
    why = None
    value: float | None = float(np.add.reduce(sum_steps))
    if np.count_nonzero(corrupt):
        value, why = None, "its sum fell while its count did not: the engine's own figure is corrupt"
    return Growth(series.bounds, None, float(np.add.reduce(steps)), value, float(times[-1] - times[0]), why)


def with_buckets(grown: Growth, series: HistogramSeries, start_s: float, end_s: float) -> Growth:
    """Return what `totals` gave, with the buckets of the same window."""
    if series.rate:
        return grown
    counts = _bucket_growth(series, start_s, end_s)
    return Growth(grown.bounds, counts, grown.total, grown.sum, grown.span_s, grown.why)


def _bucket_growth(series: HistogramSeries, start_s: float, end_s: float) -> Floats | None:
    part = span(series.t, start_s, end_s)
    if part is None or series.counts.shape[1] == 0:
        return None
    rows = series.counts[part]
    steps = rows[1:] - rows[:-1]
    reset = steps[:, -1] < 0
    if np.count_nonzero(reset):
        steps = np.where(reset[:, None], rows[1:], steps)
    grown: Floats = np.add.reduce(steps, axis=0)
    return grown


def _rate_growth(series: HistogramSeries, start_s: float, end_s: float) -> Growth | None:
    inside = (series.sum_t > start_s) & (series.sum_t <= end_s)
    if not inside.any():
        return None
    width = end_s - start_s
    rows = series.counts[(series.t > start_s) & (series.t <= end_s)]
    counts = rows.mean(axis=0) * width if len(rows) else None
    return Growth(
        series.bounds,
        counts,
        float(series.total[inside].mean()) * width,
        float(series.sum[inside].mean()) * width,
        width,
    )


def merge(parts: list[Growth]) -> Growth | None:
    """Add the events of several workers; buckets only when all have the same edges."""
    if len(parts) <= 1:
        return parts[0] if parts else None
    bounds = parts[0].bounds
    same = all(p.counts is not None and (p.bounds is bounds or np.array_equal(p.bounds, bounds)) for p in parts)
    counts: Floats | None = None
    if same:
        counts = np.sum([p.counts for p in parts if p.counts is not None], axis=0)
    why = next((p.why for p in parts if p.why), None)
    sums = [p.sum for p in parts]
    value = None if any(s is None for s in sums) else float(sum(s for s in sums if s is not None))
    return Growth(bounds, counts, sum(p.total for p in parts), value, max(p.span_s for p in parts), why)


Bounded = tuple[float, Literal["ge", "le"] | None]

_STEEPEST = 50.0
"""Rate (per bucket width) beyond which all events lie at an edge for all that a quantile can tell."""
_LEVEL = 1e-3
"""Rate below which a truncated exponential is a uniform density."""
_HALVINGS = 40


def quantile(bounds: Floats, counts: Floats, q: float, mean: float | None = None) -> Bounded | None:
    """Return the q-quantile (0-1) of cumulative bucket counts.

    In the bucket above the last finite edge the answer is (edge, "ge"), in the first bucket (edge, "le"): the edges say
    no more than that. None without events. Inside a bucket it is linear; with the `mean` of all events it is by the
    density that assumes least (maximum entropy: a truncated exponential) with the mean that is left for this bucket, so
    that events which all share one wide bucket are not said to reach its upper edge.
    """
    total = float(counts[-1]) if len(counts) else 0.0
    if total <= 0:
        return None
    rank = q * total
    index = int(np.searchsorted(counts, rank, side="left"))
    index = min(index, len(counts) - 1)
    if not np.isfinite(bounds[index]):
        return (float(bounds[index - 1]), "ge") if index > 0 else None
    if index == 0:
        return float(bounds[0]), "le"
    low, high = float(bounds[index - 1]), float(bounds[index])
    below, inside = float(counts[index - 1]), float(counts[index] - counts[index - 1])
    part = (rank - below) / inside if inside > 0 else 1.0
    if mean is not None and inside > 0:
        part = _leaning(part, _centre(bounds, counts, index, mean * total))
    return low + (high - low) * part, None


def _centre(bounds: Floats, counts: Floats, index: int, whole: float) -> float:
    """Return where in a bucket (0-1) the mean of its events is: the middle of what the others leave of the sum."""
    inside = np.diff(counts, prepend=0.0)
    others = np.arange(len(counts)) != index
    lower = np.concatenate(([min(0.0, float(bounds[0]))], bounds[:-1]))
    filled = others & (inside > 0)
    most = whole - float((inside[filled] * lower[filled]).sum())
    least = whole - float((inside[filled] * bounds[filled]).sum())
    low, high = float(bounds[index - 1]), float(bounds[index])
    ends = np.clip((np.array([least, most]) / inside[index] - low) / (high - low), 0.0, 1.0)
    return float(ends.mean())


def _leaning(part: float, centre: float) -> float:
    """Return the `part`-quantile (0-1) of a truncated exponential on 0-1 whose mean is `centre`."""
    steep, flat = _STEEPEST, -_STEEPEST
    for _ in range(_HALVINGS):
        rate = (steep + flat) / 2
        steep, flat = (rate, flat) if _mean_of(rate) < centre else (steep, rate)
    rate = (steep + flat) / 2
    return part if abs(rate) < _LEVEL else float(-np.log1p(part * np.expm1(-rate)) / rate)


def _mean_of(rate: float) -> float:
    return 0.5 - rate / 12 if abs(rate) < _LEVEL else float(1 / rate - 1 / np.expm1(rate))


def share_above(bounds: Floats, counts: Floats, threshold: float) -> tuple[float, float] | None:
    """Return the least and greatest share (0-1) of events above a threshold that the edges allow; None without events."""
    total = float(counts[-1]) if len(counts) else 0.0
    if total <= 0:
        return None
    low = int(np.searchsorted(bounds, threshold, side="right")) - 1
    high = int(np.searchsorted(bounds, threshold, side="left"))
    at_most = float(counts[low]) if low >= 0 else 0.0
    at_least = float(counts[high]) if high < len(counts) else total
    return 1.0 - at_least / total, 1.0 - at_most / total
