"""Readings: a number, a bound, or unknown with the reason; pools from their workers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.history.readings import Readings
from pdops.model.series import HistogramSeries, Reading
from tests.diagnose.build import Given, Points, grown, histogram, view

WORKERS = ("prefill-0", "decode-0", "decode-1")


def ask(given: Given) -> Readings:
    return Readings(view(workers=WORKERS, series=given))


def test_not_given_is_unknown_and_says_so() -> None:
    for reading in (
        ask({}).level("decode-0", "queue_depth"),
        ask({}).increase("decode-0", "preemptions"),
        ask({}).mean("decode-0", "itl_seconds"),
        ask({}).quantile("decode-0", "itl_seconds", 0.95),
        ask({}).bandwidth("decode-0"),
        ask({}).rate("decode-0", "preemptions"),
        ask({}).last("decode-0", "queue_depth"),
        ask({}).highest("decode-0", "queue_depth"),
        ask({}).ratio("decode-0", "prefix_cache_hits", "prefix_cache_queries"),
    ):
        assert reading.value is None
        assert reading.why
        assert not reading.above(-math.inf)
        assert not reading.below(math.inf)


def test_zero_is_a_number() -> None:
    asked = ask({"decode-0": {"queue_depth": 0.0, "preemptions": (0, 0)}})
    assert asked.level("decode-0", "queue_depth").value == 0.0
    assert asked.increase("decode-0", "preemptions").value == 0.0


def test_bounds_are_not_crossed() -> None:
    at_least, at_most = Reading(5.0, "ge"), Reading(5.0, "le")
    assert (at_least.above(4.0), at_least.below(6.0)) == (True, False)
    assert (at_most.above(4.0), at_most.below(6.0)) == (False, True)


# levels


def test_a_level_is_the_mean_of_the_last_minute() -> None:
    points = [(-200.0, 99.0), (-45.0, 2.0), (-30.0, 4.0), (0.0, 6.0)]
    reading = ask({"decode-0": {"queue_depth": points}}).level("decode-0", "queue_depth")
    assert (reading.value, reading.n) == (4.0, 3)


def test_without_a_sample_of_the_last_minute_the_newest_of_the_window_counts() -> None:
    assert (
        ask({"decode-0": {"queue_depth": [(-200.0, 9.0), (-90.0, 7.0)]}}).level("decode-0", "queue_depth").value == 7.0
    )


def test_a_series_that_ended_before_the_window_is_unknown() -> None:
    reading = ask({"decode-0": {"queue_depth": [(-400.0, 7.0), (-301.0, 7.0)]}}).level("decode-0", "queue_depth")
    assert reading.value is None
    assert reading.why is not None
    assert "too few samples" in reading.why


def test_before_and_now_are_told_apart() -> None:
    asked = ask({"decode-0": {"queue_depth": (2.0, 9.0)}})
    assert asked.level("decode-0", "queue_depth").value == 9.0
    assert asked.level("decode-0", "queue_depth", asked.view.base).value == 2.0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=15))
def test_highest_and_lowest(values: list[float]) -> None:
    points: Points = [(-15.0 * i, v) for i, v in enumerate(values)][::-1]
    asked = ask({"decode-0": {"queue_depth": points}})
    assert asked.highest("decode-0", "queue_depth").value == max(values)
    assert asked.highest("decode-0", "queue_depth", 0.0).value == min(values)
    assert asked.last("decode-0", "queue_depth").value == values[0]


# pools


def test_queues_and_counters_add_and_ratios_do_not() -> None:
    given: Given = {
        f"decode-{i}": {
            "queue_depth": 2.0 + i,
            "kv_cache_usage": 0.3 + i / 10,
            "preemptions": (0, 5 + i),
            "kv_transfer_bytes.rate": 10.0 + i,
        }
        for i in range(2)
    }
    asked = ask(given)
    assert asked.level("pool:decode", "queue_depth").value == 5.0
    assert asked.level("pool:decode", "kv_cache_usage").value == 0.4
    assert asked.increase("pool:decode", "preemptions").value == pytest.approx(11.0)
    assert asked.rate("pool:decode", "kv_transfer_bytes").value == 21.0


def test_a_pool_names_who_gave_nothing() -> None:
    reading = ask({"decode-0": {"queue_depth": 2.0}}).level("pool:decode", "queue_depth")
    assert (reading.value, reading.missing) == (2.0, ("decode-1",))
    late = ask({"decode-0": {"queue_depth": 2.0}, "decode-1": {"queue_depth": [(-600.0, 9.0), (-500.0, 9.0)]}})
    assert late.level("pool:decode", "queue_depth") == reading


def test_the_pool_s_own_series_comes_first() -> None:
    given: Given = {"pool:decode": {"queue_depth": 7.0}, "decode-0": {"queue_depth": 2.0}}
    reading = ask(given).level("pool:decode", "queue_depth")
    assert (reading.value, reading.missing) == (7.0, ())


# growth


def test_growth_and_rate_by_window() -> None:
    asked = ask({"decode-0": {"preemptions": (60, 30)}})
    assert asked.increase("decode-0", "preemptions").value == pytest.approx(30)
    assert asked.rate("decode-0", "preemptions").value == pytest.approx(0.1)
    assert asked.increase("decode-0", "preemptions", asked.view.base).value == pytest.approx(60)


def test_a_restart_counts_from_zero() -> None:
    points = [(-300.0, 90.0), (-200.0, 100.0), (-100.0, 4.0), (0.0, 6.0)]
    assert ask({"decode-0": {"preemptions": points}}).increase("decode-0", "preemptions").value == 16.0


def test_a_given_rate_is_growth_too() -> None:
    asked = ask({"decode-0": {"preemptions.rate": (0.0, 0.5)}})
    assert asked.rate("decode-0", "preemptions").value == 0.5
    assert asked.increase("decode-0", "preemptions").value == pytest.approx(150.0)


def test_one_counter_over_another() -> None:
    given: Given = {"decode-0": {"prefix_cache_hits": (0, 30), "prefix_cache_queries": (0, 120)}}
    assert ask(given).ratio("decode-0", "prefix_cache_hits", "prefix_cache_queries").value == pytest.approx(0.25)
    still = {"decode-0": {"prefix_cache_hits": (0, 0), "prefix_cache_queries": (0, 0)}}
    assert ask(still).ratio("decode-0", "prefix_cache_hits", "prefix_cache_queries").value is None


# histograms

EVENTS = {0.02: 90, 0.4: 9, 9.0: 1}


def itl(before: dict[float, float], now: dict[float, float], sums: list[float] | None = None) -> Given:
    return {"decode-0": {"itl_seconds": histogram([0.05, 0.5, 1.0], before, now, sums=sums)}}


def test_mean_quantile_and_rate_of_events() -> None:
    asked = ask(itl({}, {0.02: 90, 0.4: 10}))
    assert asked.mean("decode-0", "itl_seconds").value == pytest.approx(0.058)
    assert asked.increase("decode-0", "itl_seconds").value == 100
    assert asked.rate("decode-0", "itl_seconds").value == pytest.approx(100 / 300)
    reading = asked.quantile("decode-0", "itl_seconds", 0.95)
    assert (reading.bound, reading.n) == (None, 100)
    assert reading.value is not None
    assert 0.05 <= reading.value <= 0.5


@pytest.mark.parametrize(("q", "bound", "value"), [(0.5, "le", 0.05), (0.995, "ge", 1.0)])
def test_outside_the_edges_a_quantile_is_a_bound(q: float, bound: str, value: float) -> None:
    reading = ask(itl({}, dict(EVENTS))).quantile("decode-0", "itl_seconds", q)
    assert (reading.value, reading.bound) == (value, bound)


def test_no_events_are_no_mean() -> None:
    asked = ask(itl(dict(EVENTS), {}))
    assert asked.mean("decode-0", "itl_seconds").why == "no events in the window"
    assert asked.quantile("decode-0", "itl_seconds", 0.9).why == "no events in the window"
    assert asked.increase("decode-0", "itl_seconds").value == 0


def test_a_corrupt_sum_says_why_and_leaves_quantiles() -> None:
    asked = ask(itl({}, dict(EVENTS), [0.0, 50.0, 3.0]))
    reading = asked.mean("decode-0", "itl_seconds")
    assert reading.value is None
    assert reading.why is not None
    assert "corrupt" in reading.why
    assert asked.quantile("decode-0", "itl_seconds", 0.995).bound == "ge"


def test_workers_with_other_edges_have_no_common_quantile_and_a_common_mean() -> None:
    given = {
        "decode-0": {"itl_seconds": histogram([0.05], {}, {0.02: 10})},
        "decode-1": {"itl_seconds": histogram([0.1], {}, {0.04: 10})},
    }
    asked = ask(given)
    assert asked.mean("pool:decode", "itl_seconds").value == pytest.approx(0.03)
    assert not asked.quantile("pool:decode", "itl_seconds", 0.5).known


def test_a_given_statistic_comes_before_the_buckets() -> None:
    given = {"decode-0": {**itl({}, dict(EVENTS))["decode-0"], "itl_seconds.p95": 0.123, "itl_seconds.mean": 0.1}}
    asked = ask(given)
    assert asked.quantile("decode-0", "itl_seconds", 0.95).value == pytest.approx(0.123)
    assert asked.mean("decode-0", "itl_seconds").value == pytest.approx(0.1)


# bandwidth


def test_bandwidth_is_bytes_over_the_time_transfers_took() -> None:
    given: Given = {
        "decode-0": {
            "kv_transfer_bytes": [(t, v * 1.0) for t, v in grown(0, 50e9)],
            "kv_transfer_seconds": histogram([1.0], {}, {0.5: 20}),
        }
    }
    reading = ask(given).bandwidth("decode-0")
    assert reading.value == pytest.approx(5e9)
    assert reading.n == 20


def test_bandwidth_without_a_transfer_is_unknown() -> None:
    given: Given = {"decode-0": {"kv_transfer_bytes": (0, 0), "kv_transfer_seconds": histogram([1.0], {0.5: 3}, {})}}
    assert ask(given).bandwidth("decode-0").why == "no transfer ended in the window"


def test_asking_twice_gives_the_same_and_changes_nothing() -> None:
    made = histogram([0.05, 0.5], {}, dict(EVENTS))
    before = made.counts.copy()
    asked = ask({"decode-0": {"itl_seconds": made}})
    assert asked.mean("decode-0", "itl_seconds") == asked.mean("decode-0", "itl_seconds")
    (kept,) = asked.view.series["decode-0", "itl_seconds"]
    assert isinstance(kept, HistogramSeries)
    assert np.array_equal(kept.counts, before)
