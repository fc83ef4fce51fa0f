"""One table of metrics over time for every baseline: a row per (entity, metric), a column per scrape interval."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pdops.model.cluster import CLIENT, PAIR_PREFIX, ROUTER, Cluster
from pdops.model.series import Floats, HistogramSeries, Kind, Series
from pdops.model.view import AnySeries, View

LEVELS = (
    "queue_depth",
    "running_requests",
    "kv_cache_usage",
    "decode_prealloc_queue_depth",
    "transfer_queue_depth",
    "kv_fetch_done_waiting",
    "kvstore_up",
    "kvstore_used_bytes",
    "worker_health",
)
RATES = (
    "preemptions",
    "request_success",
    "request_failure",
    "request_timeouts",
    "admission_rejections",
    "prompt_tokens",
    "generated_tokens",
    "local_prefill_tokens",
    "kv_transfer_bytes",
    "kv_transfer_failures",
    "kv_transfer_expired",
    "kv_notifications_after_expiry",
    "kvstore_evictions",
    "worker_selection",
)
MEANS = (
    "ttft_seconds",
    "itl_seconds",
    "queue_seconds",
    "prefill_seconds",
    "decode_seconds",
    "kv_transfer_seconds",
    "handoff_seconds",
    "prompt_length",
    "output_length",
)
RATIOS = {
    "prefix_hit_ratio": ("prefix_cache_hits", "prefix_cache_queries"),
    "external_hit_ratio": ("external_cache_hits", "external_cache_queries"),
}
METRICS = (*LEVELS, *RATES, *MEANS, *RATIOS, "present")
GROUPS = ("client", "router", "prefill", "decode", "kvstore", "pair")
"""Kinds of entity: roles, and what is measured at clients, about the router and per pair."""
_LIVE = frozenset({"process_start_seconds", *LEVELS})
"""What a worker's page always has."""
_HOLD = 3.0


@dataclass(frozen=True, slots=True)
class Row:
    """Whose metric it is."""

    entity: str
    group: str
    metric: str


@dataclass(frozen=True)
class Table:
    """`values` (rows, k) at times `t` (k,) in Unix seconds; NaN where nothing is known."""

    rows: tuple[Row, ...]
    t: Floats
    values: Floats

    def between(self, start_s: float, end_s: float) -> Floats:
        """Return the values (rows, m) of the columns with start < t <= end."""
        return self.values[:, (self.t > start_s) & (self.t <= end_s)]

    @cached_property
    def places(self) -> dict[tuple[str, str], tuple[int, ...]]:
        """Row numbers by (group, metric)."""
        found: dict[tuple[str, str], list[int]] = {}
        for number, row in enumerate(self.rows):
            found.setdefault((row.group, row.metric), []).append(number)
        return {key: tuple(numbers) for key, numbers in found.items()}


def table(view: View) -> Table:
    """Read everything the baselines look at from a View."""
    t = np.arange(view.start_s + view.interval_s, view.at_s + 1e-6, view.interval_s)
    rows: list[Row] = []
    values: list[Floats] = []

    def keep(entity: str, metric: str, line: Floats | None) -> None:
        group = _group(entity, view.cluster)
        if line is not None and group is not None and not np.isnan(line).all():
            rows.append(Row(entity, group, metric))
            values.append(line)

    wanted = {*LEVELS, *RATES, *MEANS}
    for scope, signal in view.series:
        if signal in wanted:
            keep(scope, signal, _line(signal, view.series[scope, signal], t, view.interval_s))
    for scope in sorted({scope for scope, _ in view.series}):
        for metric, (part, whole) in RATIOS.items():
            above, below = (_grown(view.series.get((scope, s), ()), t, view.interval_s) for s in (part, whole))
            if above is not None and below is not None:
                keep(scope, metric, _divided(above, below))
    told = _told(view)
    for worker in view.cluster.workers:
        keep(worker.id, "present", _presence(told.get(worker.id), t, view.interval_s))
    body = np.vstack(values) if values else np.empty((0, len(t)))
    return Table(tuple(rows), t, body)


def _group(entity: str, cluster: Cluster) -> str | None:
    if entity in (CLIENT, ROUTER):
        return entity
    if entity.startswith(PAIR_PREFIX):
        return "pair"
    worker = cluster.get(entity)
    return worker.role.value if worker is not None and worker.role.value in GROUPS else None


def _line(signal: str, series: tuple[AnySeries, ...], t: Floats, interval_s: float) -> Floats | None:
    if signal in MEANS:
        parts = [_histogram(s, t, interval_s) for s in series if isinstance(s, HistogramSeries)]
        if not parts:
            return None
        total, count = (np.nansum([p[i] for p in parts], axis=0) for i in (0, 1))
        return _divided(total, count)
    if signal in RATES:
        grown = _grown(series, t, interval_s)
        return None if grown is None else grown / interval_s
    lines = [_held(s.t, s.v, t, interval_s) for s in series if isinstance(s, Series)]
    return np.fmax.reduce(lines) if lines else None


def _grown(series: tuple[AnySeries, ...], t: Floats, interval_s: float) -> Floats | None:
    lines: list[Floats] = []
    for one in series:
        if isinstance(one, Series) and one.kind is Kind.COUNTER:
            lines.append(_steps(_held(one.t, one.v, t, interval_s)))
        elif isinstance(one, HistogramSeries):
            lines.append(_steps(_held(one.sum_t, one.total, t, interval_s)))
    if not lines:
        return None
    total: Floats = np.sum(np.vstack(lines), axis=0)
    return total


def _histogram(series: HistogramSeries, t: Floats, interval_s: float) -> tuple[Floats, Floats]:
    return (
        _steps(_held(series.sum_t, series.sum, t, interval_s)),
        _steps(_held(series.sum_t, series.total, t, interval_s)),
    )


def _held(times: Floats, values: Floats, t: Floats, interval_s: float) -> Floats:
    """Return the newest value at each tick, NaN when it is older than three intervals."""
    if not len(times):
        return np.full(len(t), np.nan)
    place = np.searchsorted(times, t + 1e-6, side="right") - 1
    held: Floats = np.where(place >= 0, values[np.maximum(place, 0)], np.nan)
    held[(place < 0) | (t - times[np.maximum(place, 0)] > _HOLD * interval_s)] = np.nan
    return held


def _steps(cumulative: Floats) -> Floats:
    """Return growth per tick; a fall is a restart from zero."""
    steps = np.diff(cumulative, prepend=np.nan)
    return np.where(steps < 0, cumulative, steps)


def _divided(above: Floats, below: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below > 0, above / below, np.nan)


def _told(view: View) -> dict[str, list[Floats]]:
    """Return, by scope, the times at which its page told how it is."""
    found: dict[str, list[Floats]] = {}
    for scope, signal in view.series:
        if signal in _LIVE:
            times = [one.t for one in view.series[scope, signal] if isinstance(one, Series)]
            found.setdefault(scope, []).extend(times)
    return found


def _presence(told: list[Floats] | None, t: Floats, interval_s: float) -> Floats | None:
    """Return 1 at ticks at which a worker's page was read, else 0."""
    known = np.unique(np.concatenate(told)) if told else np.empty(0)
    if not len(known):
        return None
    there = ~np.isnan(_held(known, np.ones(len(known)), t, interval_s / _HOLD * 1.2))
    return there.astype(np.float64)
