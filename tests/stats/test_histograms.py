"""Histograms against brute force on the raw events they were made of."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pdops.model.series import HistogramSeries
from pdops.stats.histograms import Growth, growth, merge, quantile, share_above

values = st.floats(0.001, 100.0)
events = st.lists(values, min_size=1, max_size=60)
edges = st.lists(values, min_size=1, max_size=12, unique=True).map(sorted)
shares = st.floats(0.001, 1.0)


def buckets(bounds: list[float], raw: list[float]) -> tuple[np.ndarray, np.ndarray]:
    full = np.array([*bounds, math.inf])
    return full, np.array([float(sum(v <= edge for v in raw)) for edge in full])


def true_quantile(raw: list[float], q: float) -> float:
    """Return the smallest event that at least a share q of the events does not exceed."""
    return sorted(raw)[max(0, math.ceil(q * len(raw)) - 1)]


@given(edges, events, shares)
def test_quantile_is_in_the_bucket_of_the_true_one(bounds: list[float], raw: list[float], q: float) -> None:
    full, counts = buckets(bounds, raw)
    got = quantile(full, counts, q)
    truth = true_quantile(raw, q)
    assert got is not None
    value, bound = got
    if bound == "ge":
        assert value == bounds[-1]
        assert truth > value
    elif bound == "le":
        assert value == bounds[0]
        assert truth <= value
    else:
        high = next(edge for edge in bounds if truth <= edge)
        low = bounds[bounds.index(high) - 1]
        assert low < truth <= high
        assert low <= value <= high


@given(edges, events, shares)
def test_knowing_the_mean_keeps_it_in_its_bucket(bounds: list[float], raw: list[float], q: float) -> None:
    full, counts = buckets(bounds, raw)
    plain, leaning = quantile(full, counts, q), quantile(full, counts, q, sum(raw) / len(raw))
    assert plain is not None
    assert leaning is not None
    assert leaning[1] == plain[1]
    assert np.searchsorted(full, leaning[0] - 1e-9) == np.searchsorted(full, plain[0] - 1e-9)


@pytest.mark.parametrize(("at", "least", "most"), [(1.1, 1.2, 1.4), (1.5, 1.9, 1.91), (1.9, 1.98, 2.0)])
def test_events_that_share_a_bucket_lean_to_their_mean(at: float, least: float, most: float) -> None:
    got = quantile(np.array([1.0, 2.0, math.inf]), np.array([0.0, 100.0, 100.0]), 0.9, at)
    assert got is not None
    assert least <= got[0] <= most


@given(edges, events, shares, shares)
def test_a_higher_share_never_gives_a_smaller_quantile(
    bounds: list[float], raw: list[float], p: float, q: float
) -> None:
    full, counts = buckets(bounds, raw)
    low, high = quantile(full, counts, min(p, q)), quantile(full, counts, max(p, q))
    assert low is not None
    assert high is not None
    # The first bucket gives its upper edge as a bound, which is where the second one starts.
    assert low[0] <= high[0]


@given(edges, events, values)
def test_share_above_holds_the_true_share(bounds: list[float], raw: list[float], threshold: float) -> None:
    full, counts = buckets(bounds, raw)
    got = share_above(full, counts, threshold)
    assert got is not None
    truth = sum(v > threshold for v in raw) / len(raw)
    assert got[0] - 1e-12 <= truth <= got[1] + 1e-12


@given(edges, events)
def test_at_an_edge_the_share_is_exact(bounds: list[float], raw: list[float]) -> None:
    full, counts = buckets(bounds, raw)
    got = share_above(full, counts, bounds[0])
    assert got is not None
    assert got[0] == got[1] == pytest.approx(sum(v > bounds[0] for v in raw) / len(raw))


def test_nothing_happened() -> None:
    full = np.array([1.0, math.inf])
    for counts in (np.zeros(2), np.empty(0)):
        assert quantile(full[: len(counts)], counts, 0.5) is None
        assert share_above(full[: len(counts)], counts, 0.5) is None


def test_a_histogram_with_no_finite_edge_knows_no_quantile() -> None:
    assert quantile(np.array([math.inf]), np.array([5.0]), 0.5) is None


# growth over time

batches = st.lists(st.tuples(st.booleans(), st.lists(values, max_size=8)), min_size=1, max_size=15)


def recorded(bounds: list[float], history: list[tuple[bool, list[float]]]) -> tuple[HistogramSeries, list[float], bool]:
    """Return the series of a process that saw batches of events and restarted before some of them.

    Also all events after the first sample, and whether each restart can be seen in the counts.
    """
    full = np.array([*bounds, math.inf])
    kept: list[float] = []
    rows, sums, seen, shows = [buckets(bounds, [])[1]], [0.0], [], True
    for restarted, batch in history:
        shows = shows and not (restarted and kept and len(batch) >= len(kept))
        kept = list(batch) if restarted else kept + batch
        seen += batch
        rows.append(buckets(bounds, kept)[1])
        sums.append(math.fsum(kept))
    counts = np.array(rows)
    t = np.arange(len(rows), dtype=np.float64)
    series = HistogramSeries(full, t, counts, t, np.array(sums), counts[:, -1].copy())
    return series, seen, shows


@given(edges, batches)
def test_growth_is_the_events_of_the_window(bounds: list[float], history: list[tuple[bool, list[float]]]) -> None:
    series, seen, every_restart_shows = recorded(bounds, history)
    assume(every_restart_shows)
    got = growth(series, 0.0, float(series.t[-1]))
    assert got is not None
    assert got.total == len(seen)
    assert got.counts is not None
    assert got.counts.tolist() == buckets(bounds, seen)[1].tolist()
    assert got.why is None
    assert got.sum == pytest.approx(math.fsum(seen))
    if seen:
        assert got.mean == pytest.approx(math.fsum(seen) / len(seen))
    else:
        assert got.mean is None


@given(edges, st.lists(st.lists(values, min_size=1, max_size=6), min_size=2, max_size=10), st.data())
def test_a_corrupt_sum_costs_the_mean_and_nothing_else(
    bounds: list[float], history: list[list[float]], data: st.DataObject
) -> None:
    series, seen, _ = recorded(bounds, [(False, batch) for batch in history])
    at = data.draw(st.integers(1, len(series.sum) - 1))
    fall = data.draw(st.floats(1e-3, 1e6))
    sums = series.sum.copy()
    sums[at:] -= sums[at] - sums[at - 1] + fall
    got = growth(replace(series, sum=sums), 0.0, float(series.t[-1]))
    assert got is not None
    assert (got.sum, got.mean) == (None, None)
    assert got.why is not None
    assert got.total == len(seen)
    assert got.counts is not None
    assert got.counts.tolist() == buckets(bounds, seen)[1].tolist()


def test_totals_may_be_sampled_more_often_than_buckets() -> None:
    series, _, _ = recorded([1.0], [(False, [0.5]), (False, [2.0]), (False, [0.5])])
    sparse = replace(series, t=series.t[::3], counts=series.counts[::3])
    got = growth(sparse, 0.0, 3.0)
    assert got is not None
    assert (got.total, got.counts is None) == (3, False)
    inside = growth(sparse, 0.5, 2.5)
    assert inside is not None
    assert (inside.total, inside.counts) == (2, None)


def test_without_two_samples_nothing_is_known() -> None:
    series, _, _ = recorded([1.0], [(False, [0.5])])
    assert growth(series, 5.0, 9.0) is None


@given(edges, events, events)
def test_merging_is_seeing_both(bounds: list[float], first: list[float], second: list[float]) -> None:
    parts = [growth(recorded(bounds, [(False, raw)])[0], 0.0, 1.0) for raw in (first, second)]
    merged = merge([p for p in parts if p is not None])
    assert merged is not None
    assert merged.counts is not None
    assert merged.counts.tolist() == buckets(bounds, first + second)[1].tolist()
    assert merged.mean == pytest.approx(math.fsum(first + second) / len(first + second))


def test_other_edges_cannot_be_merged_and_one_unknown_sum_spoils_the_mean() -> None:
    one = Growth(np.array([1.0, math.inf]), np.array([1.0, 2.0]), 2.0, 3.0, 10.0)
    other = Growth(np.array([2.0, math.inf]), np.array([1.0, 2.0]), 2.0, None, 10.0, "corrupt")
    merged = merge([one, other])
    assert merged is not None
    assert (merged.counts, merged.total, merged.sum, merged.why) == (None, 4.0, None, "corrupt")
    assert merge([]) is None


def test_a_rate_histogram_is_scaled_by_the_window() -> None:
    full = np.array([1.0, math.inf])
    t = np.array([5.0, 10.0])
    rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    series = HistogramSeries(full, t, rows, t, np.array([1.0, 3.0]), np.array([2.0, 4.0]), rate=True)
    got = growth(series, 0.0, 10.0)
    assert got is not None
    assert got.counts is not None
    assert (got.total, got.sum, got.counts.tolist()) == (30.0, 20.0, [20.0, 30.0])
    assert growth(series, 20.0, 30.0) is None
