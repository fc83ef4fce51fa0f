"""The course of a pool over the whole history: what its histograms' means, rates and levels were, bin by bin."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pdops.diagnose.context import Context
from pdops.model.series import Floats, HistogramSeries, Kind, Series
from pdops.model.view import AnySeries
from pdops.stats import bins

WIDTH_S = 5.0
"""Least width of a bin; at one request a second it holds a few, and a change is placed to within it."""
_SAMPLES = 2.0


class Course:
    """One time grid over all that a View remembers, and signals on it.

    Every answer has shape (n,), one number a bin, NaN where nothing is known. A pool is answered from all its workers.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        width = max(WIDTH_S, _SAMPLES * ctx.view.interval_s)
        self.edges = bins.grid(ctx.view.start_s, ctx.view.at_s, width)
        self.width_s = width
        self._places: dict[int, bins.Place] = {}

    @property
    def t(self) -> Floats:
        """The end of each bin in Unix seconds."""
        return self.edges[1:]

    def mean(self, scope: str, signal: str) -> tuple[Floats, Floats]:
        """Return a histogram's mean and its number of events in each bin."""
        given = self._ctx.view.series.get((scope, f"{signal}.mean"))
        parts = self._ctx.ask.parts(scope, signal)
        sums, totals = self._zeros(), self._zeros()
        found = False
        for _, series in parts:
            if isinstance(series, HistogramSeries) and not series.rate:
                found = True
                total = bins.grown(series.total, self._place(series.sum_t))
                value = bins.grown(series.sum, self._place(series.sum_t))
                # A sum that fell is a restart or corrupt; which of the two a mean cannot tell, so the bin is left out.
                fell = np.isnan(total) | np.isnan(value) | (value < 0)
                totals += np.where(fell, 0.0, total)
                sums += np.where(fell, 0.0, value)
        if not found and given is None:
            given = tuple(s for _, s in self._ctx.ask.parts(scope, f"{signal}.mean"))
        if not found:
            level = self._averaged(given or ())
            return level, np.where(np.isnan(level), 0.0, np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(totals > 0, sums / totals, np.nan), totals

    def grown(self, scope: str, signal: str) -> Floats:
        """Return how much a counter of all parts together grew in each bin; NaN where no part is known."""
        out, any_known = self._zeros(), np.zeros(len(self.t), dtype=bool)
        for _, series in self._ctx.ask.parts(scope, signal):
            if isinstance(series, HistogramSeries) and not series.rate:
                step = bins.grown(series.total, self._place(series.sum_t))
            elif isinstance(series, Series) and series.kind is Kind.COUNTER:
                step = bins.grown(series.v, self._place(series.t))
            else:
                continue
            any_known |= ~np.isnan(step)
            out += np.nan_to_num(step)
        return np.where(any_known, out, np.nan)

    def level(self, scope: str, signal: str) -> Floats:
        """Return the mean over the parts of a gauge in each bin."""
        return self._averaged(s for _, s in self._ctx.ask.parts(scope, signal))

    def _averaged(self, series: Iterable[AnySeries]) -> Floats:
        total, n = self._zeros(), self._zeros()
        for one in series:
            if isinstance(one, Series):
                level = bins.averaged(one.t, one.v, self.edges)
                there = ~np.isnan(level)
                total[there] += level[there]
                n += there
        with np.errstate(invalid="ignore"):
            return np.where(n > 0, total / np.maximum(n, 1), np.nan)

    def _place(self, t: Floats) -> bins.Place:
        """Return where the edges lie among samples; what a page gives together shares its times."""
        if id(t) not in self._places:
            self._places[id(t)] = bins.places(t, self.edges)
        return self._places[id(t)]

    def _zeros(self) -> Floats:
        return np.zeros(len(self.t))
