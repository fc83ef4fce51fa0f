"""A signal over time in equal bins: what each bin says by itself, nothing carried over a gap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pdops.catalog.load import catalog
from pdops.model.series import Floats, HistogramSeries, Kind, Series
from pdops.stats.histograms import quantile
from pdops_tui.models.ask import SHARES, WHOLE, Ask
from pdops_tui.models.format import seconds

SPAN_S = 900.0
_ADDS = frozenset({"requests", "tokens", "bytes", "transfers", "objects", "events", "workers", "notifications"})
LEAST_BIN_S = 20.0
"""Buckets come every ten seconds, and a bin of a histogram needs two of them."""


@dataclass(frozen=True, slots=True)
class Trend:
    """One value a bin, NaN where nothing is known; `start_s` and `end_s` are Unix seconds."""

    values: Floats
    start_s: float
    end_s: float
    unit: str = ""

    @property
    def known(self) -> bool:
        """Whether any bin is known."""
        return bool(np.isfinite(self.values).any())

    @property
    def top(self) -> float:
        """The greatest value, NaN when none is known."""
        return float(np.nanmax(self.values)) if self.known else float("nan")


@dataclass(frozen=True, slots=True, eq=False)
class Heat:
    """Events of a histogram by bin and bucket: `counts` (bins, m) are not cumulative, NaN where a bin is not known.

    `bounds` (m,) are the upper edges.
    """

    bounds: Floats
    counts: Floats
    start_s: float
    end_s: float


def edges(ask: Ask, bins: int, least_s: float = 0.0, span_s: float = SPAN_S) -> Floats:
    """Return bins + 1 moments over what the View knows of; fewer bins when they would be shorter than `least_s`."""
    begin = max(ask.view.start_s, ask.view.at_s - span_s)
    length = max(ask.view.at_s - begin, 1e-9)
    least = max(least_s, 2.0 * ask.view.interval_s)
    count = max(1, min(bins, int(length / least)))
    return np.linspace(begin, ask.view.at_s, count + 1)


def span_of(ask: Ask) -> str:
    """Return in words how far back trends reach."""
    length = min(SPAN_S, max(0.0, ask.view.at_s - ask.view.start_s))
    return f"last {seconds(float(round(length)))}"


def gauge(ask: Ask, scope: str, signal: str, bins: int) -> Trend:
    """Return a gauge's mean in each bin: over the parts of a pool added up, or the greatest of them for a ratio."""
    at = edges(ask, bins)
    rows = [_means(s, at) for _, s in ask.read.parts(scope, signal) if isinstance(s, Series)]
    if signal in SHARES:
        rows = [np.where(row > WHOLE, np.nan, row) for row in rows]
    return _trend(rows, at, signal)


def rate(ask: Ask, scope: str, signal: str, bins: int) -> Trend:
    """Return a counter's growth, or a histogram's events, per second of the time it was seen to grow in, by bin."""
    at = edges(ask, bins)
    rows = []
    for _, series in ask.read.parts(scope, signal):
        if isinstance(series, HistogramSeries):
            rows.append(_growth(series.sum_t, series.total, at) / _span(series.sum_t, at))
        elif series.kind is Kind.COUNTER:
            rows.append(_growth(series.t, series.v, at) / _span(series.t, at))
    return _trend(rows, at, signal, per_s=True)


def of(ask: Ask, scope: str, signal: str, bins: int) -> Trend:
    """Return what a piece of evidence was over time: `signal` with the statistic that evidence carries, if any."""
    stem, _, stat = signal.partition(".")
    spec = catalog().signals.get(stem.partition("[")[0])
    if stat and ask.read.parts(scope, signal):
        return gauge(ask, scope, signal, bins)
    if stem == "kv_transfer_bandwidth":
        return bandwidth(ask, scope, bins)
    if stat.startswith("p") and stat[1:].isdigit():
        return percentile(ask, scope, stem, int(stat[1:]) / 100, bins)
    kind = spec.kind if spec is not None else Kind.GAUGE
    if stat == "mean" or (kind is Kind.HISTOGRAM and not stat):
        return mean(ask, scope, stem, bins)
    if stat == "rate" or kind is Kind.COUNTER:
        return rate(ask, scope, stem, bins)
    return gauge(ask, scope, stem, bins)


def mean(ask: Ask, scope: str, signal: str, bins: int) -> Trend:
    """Return the mean of a histogram's events in each bin."""
    at, total, sums = _sums(ask, scope, signal, bins)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.where(total > 0, sums / total, np.nan)
    return Trend(values, float(at[0]), float(at[-1]), "seconds")


def bandwidth(ask: Ask, scope: str, bins: int) -> Trend:
    """Return the mean bytes/s of one KV transfer in each bin: bytes moved over the sum of transfer times."""
    for suffix in ("mean", "p50"):
        if ask.read.parts(scope, f"kv_transfer_bandwidth.{suffix}"):
            return gauge(ask, scope, f"kv_transfer_bandwidth.{suffix}", bins)
    at, _, sums = _sums(ask, scope, "kv_transfer_seconds", bins)
    parts = [s for _, s in ask.read.parts(scope, "kv_transfer_bytes") if isinstance(s, Series)]
    moved = _added([_growth(s.t, s.v, at) for s in parts if s.kind is Kind.COUNTER], at)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.where(sums > 0, moved / sums, np.nan)
    return Trend(values, float(at[0]), float(at[-1]), "bytes/s")


def _sums(ask: Ask, scope: str, signal: str, bins: int) -> tuple[Floats, Floats, Floats]:
    """Return bin edges, events and their sum in each bin."""
    at = edges(ask, bins)
    parts = [s for _, s in ask.read.parts(scope, signal) if isinstance(s, HistogramSeries) and not s.rate]
    return (
        at,
        _added([_growth(s.sum_t, s.total, at) for s in parts], at),
        _added([_growth(s.sum_t, s.sum, at) for s in parts], at),
    )


def percentile(ask: Ask, scope: str, signal: str, q: float, bins: int) -> Trend:
    """Return the q-quantile (0-1) of a histogram's events in each bin; where only a bound is known, the bound."""
    given = ask.read.parts(scope, f"{signal}.p{round(q * 100)}")
    if given:
        return gauge(ask, scope, f"{signal}.p{round(q * 100)}", bins)
    found = heat(ask, scope, signal, bins)
    if found is None:
        at = edges(ask, bins, LEAST_BIN_S)
        return Trend(np.full(len(at) - 1, np.nan), float(at[0]), float(at[-1]), "seconds")
    values = np.full(len(found.counts), np.nan)
    for index, row in enumerate(found.counts):
        if np.isfinite(row).all() and row.sum() > 0:
            answer = quantile(found.bounds, np.cumsum(row), q)
            values[index] = answer[0] if answer is not None else np.nan
    return Trend(values, found.start_s, found.end_s, "seconds")


def heat(ask: Ask, scope: str, signal: str, bins: int) -> Heat | None:
    """Return a histogram's events by bin and bucket, added up over the parts that have the same edges; None without any."""
    at = edges(ask, bins, LEAST_BIN_S)
    parts = [s for _, s in ask.read.parts(scope, signal) if isinstance(s, HistogramSeries) and len(s.t) and not s.rate]
    if not parts:
        return None
    bounds = parts[0].bounds
    rows = [_bucket_growth(s, at) for s in parts if np.array_equal(s.bounds, bounds)]
    return Heat(bounds, _added(rows, at), float(at[0]), float(at[-1]))


def _bucket_growth(series: HistogramSeries, at: Floats) -> Floats:
    """Return the events of each bin and bucket, NaN for a bin in which no bucket sample came."""
    grown = np.diff(series.counts, axis=0)
    # A restart begins from zero: what is counted after it is what grew.
    grown = np.where(grown[:, -1:] < 0, series.counts[1:], grown)
    risen = np.vstack([np.zeros((1, grown.shape[1])), grown.cumsum(axis=0)])
    first, end = _ends(series.t, at)
    cumulative = risen[end] - risen[first]
    cumulative[end <= first] = np.nan
    counts: Floats = np.maximum(np.diff(cumulative, axis=1, prepend=0.0), 0.0)
    return counts


def _growth(t: Floats, v: Floats, at: Floats) -> Floats:
    """Return how much a counter grew in each bin, NaN for a bin without two samples to tell."""
    if not len(t):
        return np.full(len(at) - 1, np.nan)
    steps = np.diff(v)
    risen = np.concatenate([[0.0], np.where(steps < 0, v[1:], steps).cumsum()])
    first, end = _ends(t, at)
    return np.where(end > first, risen[end] - risen[first], np.nan)


def _added(rows: list[Floats], at: Floats) -> Floats:
    """Return the sum of rows in each bin (or bin and bucket), NaN for one of which no row knows anything."""
    if not rows:
        return np.full(len(at) - 1, np.nan)
    return np.where(np.isfinite(rows).any(axis=0), np.nansum(rows, axis=0), np.nan)


def _span(t: Floats, at: Floats) -> Floats:
    """Return the seconds over which a counter is seen to grow in each bin: from the sample before it, however old."""
    if not len(t):
        return np.full(len(at) - 1, np.nan)
    first, end = _ends(t, at)
    return np.where(end > first, t[end] - t[first], np.nan)


def _ends(t: Floats, at: Floats) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return for each bin the last sample before it, or the first one there is, and the last one in it."""
    last = np.maximum(np.searchsorted(t, at, side="right") - 1, 0)
    return last[:-1], last[1:]


def _means(series: Series, at: Floats) -> Floats:
    summed = np.concatenate([[0.0], series.v.cumsum()])
    place = np.searchsorted(series.t, at, side="right")
    number = np.diff(place)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(number > 0, np.diff(summed[place]) / number, np.nan)


def _trend(rows: list[Floats], at: Floats, signal: str, *, per_s: bool = False) -> Trend:
    spec = catalog().signals.get(signal.partition(".")[0])
    unit = spec.unit if spec is not None else ""
    if not rows:
        values = np.full(len(at) - 1, np.nan)
    else:
        table = np.array(rows)
        blank = ~np.isfinite(table).any(axis=0)
        adds = per_s or ("." not in signal and unit in _ADDS)
        filled = np.nan_to_num(table, nan=0.0 if adds else -np.inf)
        values = np.where(blank, np.nan, filled.sum(axis=0) if adds else filled.max(axis=0))
    return Trend(values, float(at[0]), float(at[-1]), f"{unit}/s" if per_s else unit)
