"""Answers to questions about a View: a number, a bound, or unknown with the reason.

A scope with several parts (a pool, or clients seen by several routers) is answered from all of them: counters and
queues add, ratios and ages give the greatest. Parts without data are named in `Reading.missing`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from pdops.catalog.load import catalog
from pdops.model.cluster import PAIR_PREFIX, POOL_PREFIX
from pdops.model.series import HistogramSeries, Kind, Reading, Series, Window, unknown
from pdops.model.view import AnySeries, View
from pdops.stats import counters, histograms
from pdops.stats.robust import quantile

LEVEL_S = 60.0
"""A gauge's level is its mean over this many seconds at the end of a window."""
FRESH_INTERVALS = 3.0
FRESH_LEAST_S = 12.0
"""Full pages come every ten seconds, so a signal that only they carry is that old without any fault."""
_ADDITIVE_UNITS = frozenset(
    {"requests", "tokens", "bytes", "transfers", "objects", "events", "workers", "notifications"}
)
_MIN_EVENTS = 1
BANDWIDTH = ("kv_transfer_bandwidth", "kv_transfer_bytes")
"""Without one of these signals, or a statistic of it, a scope has no bandwidth."""


_NOT_ASKED = object()

P = ParamSpec("P")
R = TypeVar("R")


def _remembered(method: Callable[Concatenate[Readings, P], R]) -> Callable[Concatenate[Readings, P], R]:
    """Answer the same question once: a View never changes, and checks ask the same of every worker's peers."""
    name = method.__name__

    @wraps(method)
    def asked(self: Readings, /, *args: P.args, **kwargs: P.kwargs) -> R:
        known = self._answers[name]
        key = (args, tuple(kwargs.items())) if kwargs else args
        answer = known.get(key, _NOT_ASKED)
        if answer is _NOT_ASKED:
            answer = known[key] = method(self, *args, **kwargs)
        return answer  # type: ignore[no-any-return]

    return asked


class Readings:
    """Ask a View. Windows default to the one that is judged."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._answers: defaultdict[str, dict[Any, Any]] = defaultdict(dict)
        self._totals: dict[tuple[int, Window], histograms.Growth | None] = {}
        self._rises: dict[tuple[int, Window], counters.Increase | None] = {}
        self._levels: dict[tuple[int, Window], tuple[float, int] | None] = {}

    @cached_property
    def _names(self) -> tuple[frozenset[str], frozenset[str]]:
        """The signals that any scope but a pair has, and those that any pair has."""
        found: tuple[set[str], set[str]] = (set(), set())
        for scope, signal in self.view.series:
            found[scope.startswith(PAIR_PREFIX)].add(signal)
        return frozenset(found[0]), frozenset(found[1])

    def _known(self, scope: str, signal: str, stat: str | None = None) -> bool:
        """Whether any scope of that kind has a signal, or a statistic of it: most that is asked for, nobody has."""
        names = self._names[scope.startswith(PAIR_PREFIX)]
        return signal in names or (stat is not None and f"{signal}.{stat}" in names)

    @_remembered
    def parts(self, scope: str, signal: str) -> tuple[tuple[str, AnySeries], ...]:
        """Return (worker or scope, series) of everything that makes up a scope."""
        if not self._known(scope, signal):
            return ()
        direct = self.view.series.get((scope, signal))
        if direct is not None:
            return tuple((scope, s) for s in direct)
        if scope.startswith(POOL_PREFIX):
            workers = self.view.cluster.of_pool(scope.removeprefix(POOL_PREFIX))
            return tuple((w.id, s) for w in workers for s in self.view.series.get((w.id, signal), ()))
        return ()

    def has(self, scope: str, signal: str) -> bool:
        """Whether any source ever gave this signal."""
        return self._known(scope, signal) and bool(self.parts(scope, signal))

    @_remembered
    def fresh(self, scope: str, signal: str) -> bool:
        """Whether a signal was still given a moment ago: within three intervals, or a minute in a written case."""
        patience = LEVEL_S if self.view.relative else max(FRESH_INTERVALS * self.view.interval_s, FRESH_LEAST_S)
        newest = [float(_times(s)[-1]) for _, s in self.parts(scope, signal) if len(_times(s))]
        return bool(newest) and min(newest) >= self.view.at_s - patience

    @_remembered
    def level(self, scope: str, signal: str, window: Window | None = None) -> Reading:
        """Return a gauge's level at the end of a window."""
        if not self._known(scope, signal):
            return self._absent(scope, signal)
        window = window or self.view.now
        found: list[float] = []
        n = 0
        for _, series in self._living(scope, signal, window):
            if isinstance(series, Series) and (level := self._level(series, window)) is not None:
                found.append(level[0])
                n += level[1]
        return self._combined(scope, signal, found, n)

    @_remembered
    def last(self, scope: str, signal: str) -> Reading:
        """Return a gauge's newest value in the judged window."""
        if not self._known(scope, signal):
            return self._absent(scope, signal)
        window = self.view.now
        found: list[float] = []
        for _, series in self._living(scope, signal, window):
            if isinstance(series, Series):
                values = _within(series, window.start_s, window.end_s)
                if len(values):
                    found.append(float(values[-1]))
        return self._combined(scope, signal, found, len(found))

    @_remembered
    def highest(self, scope: str, signal: str, q: float = 1.0, window: Window | None = None) -> Reading:
        """Return the q-quantile (0-1) over time of a gauge in a window, by default its maximum."""
        if not self._known(scope, signal):
            return self._absent(scope, signal)
        window = window or self.view.now
        found: list[float] = []
        n = 0
        for _, series in self._living(scope, signal, window):
            if isinstance(series, Series):
                values = _within(series, window.start_s, window.end_s)
                if len(values):
                    # The ends are asked for most, and need no sorting.
                    found.append(float(values.max() if q == 1.0 else values.min() if q == 0.0 else quantile(values, q)))
                    n += len(values)
        return self._combined(scope, signal, found, n)

    @_remembered
    def increase(self, scope: str, signal: str, window: Window | None = None) -> Reading:
        """Return how much a counter, or the number of events of a histogram, grew in a window."""
        if not self._known(scope, signal, "rate"):
            return self._absent(scope, signal)
        window = window or self.view.now
        grown = self._grown(scope, signal, window)
        if isinstance(grown, Reading):
            return grown
        value, _, n = grown
        return Reading(value, n=n, missing=self._missing(scope, signal))

    @_remembered
    def rate(self, scope: str, signal: str, window: Window | None = None) -> Reading:
        """Return a counter's growth, or a histogram's events, per second."""
        if not self._known(scope, signal, "rate"):
            return self._absent(scope, signal)
        window = window or self.view.now
        if (given := self._given(scope, f"{signal}.rate", window)) is not None:
            return given
        grown = self._grown(scope, signal, window)
        if isinstance(grown, Reading):
            return grown
        _, per_s, n = grown
        return Reading(per_s, n=n, missing=self._missing(scope, signal))

    @_remembered
    def mean(self, scope: str, signal: str, window: Window | None = None) -> Reading:
        """Return the mean of a histogram's events in a window."""
        if not self._known(scope, signal, "mean"):
            return self._absent(scope, signal)
        window = window or self.view.now
        if (given := self._given(scope, f"{signal}.mean", window)) is not None:
            return given
        merged = self._merged(scope, signal, window)
        if isinstance(merged, Reading):
            return merged
        if merged.sum is None:
            return unknown(merged.why or "its sum is not known")
        if merged.mean is None:
            return unknown("no events in the window")
        return Reading(merged.mean, n=int(merged.total), missing=self._missing(scope, signal))

    @_remembered
    def quantile(
        self, scope: str, signal: str, q: float, window: Window | None = None, *, by_mean: bool = False
    ) -> Reading:
        """Return the q-quantile (0-1) of a histogram's events in a window, or the bound its edges allow.

        It is linear inside a bucket, as Prometheus has it, or `by_mean` leans to the mean of the events.
        """
        window = window or self.view.now
        if (given := self._given(scope, f"{signal}.p{round(q * 100)}", window)) is not None:
            return given
        merged = self._merged(scope, signal, window, buckets=True)
        if isinstance(merged, Reading):
            return merged
        if merged.total < _MIN_EVENTS:
            return unknown("no events in the window")
        if merged.counts is None:
            return unknown("buckets are not known for this window, or differ between workers")
        answer = histograms.quantile(merged.bounds, merged.counts, q, merged.mean if by_mean else None)
        if answer is None:
            return unknown("no events in the window")
        return Reading(answer[0], answer[1], n=int(merged.total), missing=self._missing(scope, signal))

    @_remembered
    def ratio(self, scope: str, part: str, whole: str, window: Window | None = None) -> Reading:
        """Return the growth of one counter over the growth of another."""
        above, below = self.increase(scope, part, window), self.increase(scope, whole, window)
        if above.value is None:
            return above
        if below.value is None:
            return below
        if below.value <= 0:
            return unknown(f"{whole} did not grow in the window")
        return Reading(above.value / below.value, n=below.n, missing=tuple({*above.missing, *below.missing}))

    @_remembered
    def bandwidth(self, scope: str, window: Window | None = None) -> Reading:
        """Return the mean achieved bytes/s of one KV transfer.

        Bytes moved over the sum of transfer times; it understates a link by the number of transfers that overlap.
        """
        window = window or self.view.now
        counted = self.has(scope, "kv_transfer_bytes") or self.has(scope, "kv_transfer_bytes.rate")
        if not counted and not any(self.has(scope, f"kv_transfer_bandwidth.{s}") for s in ("mean", "p50")):
            return self._absent(scope, "kv_transfer_bytes")
        for suffix in ("mean", "p50"):
            if (given := self._given(scope, f"kv_transfer_bandwidth.{suffix}", window)) is not None:
                return given
        moved = self.increase(scope, "kv_transfer_bytes", window)
        if moved.value is None:
            return moved
        took = self._merged(scope, "kv_transfer_seconds", window)
        if isinstance(took, Reading):
            return took
        if took.sum is None or took.sum <= 0 or took.total <= 0:
            return unknown(took.why or "no transfer ended in the window")
        return Reading(moved.value / took.sum, n=int(took.total), missing=moved.missing)

    def _given(self, scope: str, signal: str, window: Window) -> Reading | None:
        """Return a statistic that a source gives ready-made, or None where it does not."""
        if not self._known(scope, signal):
            return None
        given = self.level(scope, signal, window)
        return given if given.known else None

    @_remembered
    def _living(self, scope: str, signal: str, window: Window) -> list[tuple[str, AnySeries]]:
        parts = self.parts(scope, signal)
        return [(n, s) for n, s in parts if len(t := _times(s)) and t[-1] >= window.start_s] if parts else []

    def events(self, scope: str, signal: str, window: Window | None = None) -> histograms.Growth | Reading:
        """Return a histogram's events in a window with their buckets, or why they are not known."""
        return self._merged(scope, signal, window or self.view.now, buckets=True)

    @_remembered
    def _merged(self, scope: str, signal: str, window: Window, *, buckets: bool = False) -> histograms.Growth | Reading:
        """Return the events of all parts together; with buckets they cost much more."""
        grown = []
        for _, series in self._living(scope, signal, window):
            if isinstance(series, HistogramSeries) and (own := self.totals(series, window)) is not None:
                if buckets:
                    own = histograms.with_buckets(own, series, window.start_s, window.end_s)
                grown.append(own)
        return histograms.merge(grown) or self._absent(scope, signal)

    @_remembered
    def _grown(self, scope: str, signal: str, window: Window) -> tuple[float, float, int] | Reading:
        """Return (growth, growth per second, samples) of a counter or of a histogram's events."""
        total = per_s = 0.0
        n = 0
        found = False
        for _, series in self._living(scope, signal, window):
            if isinstance(series, HistogramSeries):
                grown = self.totals(series, window)
                if grown is None or grown.span_s <= 0:
                    continue
                total, per_s, n = total + grown.total, per_s + grown.total / grown.span_s, n + int(grown.total)
            elif series.kind is Kind.COUNTER:
                rise = self._rise(series, window)
                if rise is None:
                    continue
                total, per_s, n = total + rise.value, per_s + rise.rate, n + rise.n
            else:
                continue
            found = True
        if found:
            return total, per_s, n
        given = self._given(scope, f"{signal}.rate", window)
        if given is not None and given.value is not None:
            return given.value * window.span_s, given.value, given.n
        return self._absent(scope, signal)

    def totals(self, series: HistogramSeries, window: Window) -> histograms.Growth | None:
        """Return the events of one series without buckets, once for its worker and its pool.

        What `parts` remembers keeps its identity.
        """
        key = (id(series), window)
        if key not in self._totals:
            self._totals[key] = histograms.totals(series, window.start_s, window.end_s)
        return self._totals[key]

    def _rise(self, series: Series, window: Window) -> counters.Increase | None:
        key = (id(series), window)
        if key not in self._rises:
            self._rises[key] = counters.increase(series.t, series.v, window.start_s, window.end_s)
        return self._rises[key]

    def _level(self, series: Series, window: Window) -> tuple[float, int] | None:
        """Return the mean of a gauge's newest samples in a window and their number; None without any."""
        key = (id(series), window)
        if key not in self._levels:
            start = max(window.start_s, window.end_s - LEVEL_S)
            values = _within(series, start, window.end_s)
            if len(values) == 0:
                values = _within(series, window.start_s, window.end_s)[-1:]
            self._levels[key] = (float(np.add.reduce(values)) / len(values), len(values)) if len(values) else None
        return self._levels[key]

    def _combined(self, scope: str, signal: str, found: list[float], n: int) -> Reading:
        if not found:
            return self._absent(scope, signal)
        known = catalog().signals.get(signal.partition(".")[0].partition("[")[0])
        stem, _, stat = signal.partition(".")
        adds = stat == "rate" or (not stat and known is not None and known.unit in _ADDITIVE_UNITS)
        value = sum(found) if adds or not stem else max(found)
        return Reading(float(value), n=n, missing=self._missing(scope, signal))

    @_remembered
    def _missing(self, scope: str, signal: str) -> tuple[str, ...]:
        """Name the workers of a pool that gave nothing about a signal in the judged window."""
        given = (scope, signal) in self.view.series or (scope, f"{signal}.rate") in self.view.series
        if not scope.startswith(POOL_PREFIX) or given:
            return ()
        living = {name for name, _ in self._living(scope, signal, self.view.now)}
        return tuple(w.id for w in self.view.cluster.of_pool(scope.removeprefix(POOL_PREFIX)) if w.id not in living)

    def _absent(self, scope: str, signal: str) -> Reading:
        if not self.has(scope, signal):
            missing = self._missing(scope, signal) if scope.startswith(POOL_PREFIX) else ()
            return unknown(f"{signal.partition('.')[0]} is not given for {scope}", missing)
        return unknown(f"too few samples of {signal.partition('.')[0]} for {scope} in the window")


def _times(series: AnySeries) -> np.ndarray:
    return series.sum_t if isinstance(series, HistogramSeries) else series.t


def _within(series: Series, start_s: float, end_s: float) -> np.ndarray:
    """Return the values of the samples in [start, end]."""
    first, last = series.t.searchsorted(start_s, "left"), series.t.searchsorted(end_s, "right")
    return series.v[first:last]
