"""Signals over time: each bin says what is known of it, and nothing else."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pdops.model.series import HistogramSeries, Kind, Series
from pdops.model.view import View
from pdops_tui.draw.line import plain, width_of
from pdops_tui.draw.plot import GAP, heat_lines, plot, spark, squeeze
from pdops_tui.models import trend
from pdops_tui.models.ask import Ask
from pdops_tui.models.format import seconds
from pdops_tui.models.trend import Trend
from tests.tui import build as b


def ask(**series: object) -> Ask:
    """Return 100 s of a View in which prefill-0 has these series."""
    sound = b.view(seconds=3)
    keyed = {("prefill-0", name): (made,) for name, made in series.items()}
    view: View = dataclasses.replace(sound, start_s=0.0, at_s=100.0, series=keyed)  # type: ignore[arg-type]
    return Ask(view, None)


def gauge(t: list[float], v: list[float], kind: Kind = Kind.GAUGE) -> Series:
    return Series(kind, np.array(t), np.array(v))


def test_a_gauge_is_its_mean_in_each_bin_and_unknown_where_it_was_silent() -> None:
    made = trend.gauge(ask(queue_depth=gauge([1, 11, 12, 41], [2, 4, 6, 8])), "prefill-0", "queue_depth", 5)
    np.testing.assert_array_equal(made.values, [4.0, np.nan, 8.0, np.nan, np.nan])


def test_a_counter_that_fell_began_anew() -> None:
    series = gauge([0, 10, 20, 30, 100], [0, 100, 5, 25, 25], Kind.COUNTER)
    made = trend.rate(ask(preemptions=series), "prefill-0", "preemptions", 10)
    np.testing.assert_allclose(made.values[:3], [10.0, 0.5, 2.0])
    assert np.isnan(made.values[3:9]).all()
    assert made.values[9] == 0.0


def test_growth_that_was_seen_only_after_a_silence_is_spread_over_the_silence() -> None:
    series = gauge([0, 10, 20, 90, 100], [0, 10, 20, 90, 100], Kind.COUNTER)
    made = trend.rate(ask(preemptions=series), "prefill-0", "preemptions", 10)
    np.testing.assert_allclose(made.values[[0, 1, 8, 9]], 1.0)
    assert np.isnan(made.values[2:8]).all()


def test_bandwidth_is_bytes_over_transfer_time_whatever_the_distance_of_samples() -> None:
    took = histogram([0, 30, 100], [[0, 0, 0], [0, 0, 4], [0, 0, 8]])
    moved = gauge([0, 30, 100], [0, 8.0, 16.0], Kind.COUNTER)
    made = trend.bandwidth(ask(kv_transfer_seconds=took, kv_transfer_bytes=moved), "prefill-0", 10)
    np.testing.assert_allclose(made.values[np.isfinite(made.values)], 4.0)


def test_a_pool_adds_up_what_adds_and_takes_the_fullest_of_ratios() -> None:
    view = b.view(seconds=60)
    both = Ask(view, None)
    assert trend.gauge(both, "pool:decode", "running_requests", 5).values[-1] == pytest.approx(61.0)
    assert trend.gauge(both, "pool:decode", "kv_cache_usage", 5).values[-1] == pytest.approx(0.56)


def histogram(t: list[float], counts: list[list[float]]) -> HistogramSeries:
    table = np.array(counts, dtype=float)
    return HistogramSeries(
        bounds=np.array([0.1, 1.0, np.inf]), t=np.array(t), counts=table, sum_t=np.array(t), sum=table[:, -1] * 0.5, total=table[:, -1],
    )  # fmt: skip


def test_buckets_over_time_are_not_cumulative_and_survive_a_restart() -> None:
    series = histogram([0, 20, 40, 60, 80, 100], [[0, 0, 0], [4, 6, 6], [4, 16, 16], [1, 2, 3], [1, 2, 3], [1, 2, 3]])
    made = trend.heat(ask(kv_transfer_seconds=series), "prefill-0", "kv_transfer_seconds", 5)
    assert made is not None
    np.testing.assert_array_equal(made.counts, [[4, 2, 0], [0, 10, 0], [1, 1, 1], [0, 0, 0], [0, 0, 0]])


def test_a_percentile_is_unknown_in_a_bin_without_events() -> None:
    series = histogram(
        [0, 20, 40, 60, 80, 100], [[0, 0, 0], [10, 10, 10], [10, 10, 10], [10, 20, 20], [10, 20, 20], [10, 20, 20]]
    )
    made = trend.percentile(ask(ttft_seconds=series), "prefill-0", "ttft_seconds", 0.95, 5)
    assert made.values[0] <= 0.1
    assert 0.1 < made.values[2] <= 1.0
    assert np.isnan(made.values[[1, 3, 4]]).all()


def test_nothing_given_is_not_known() -> None:
    empty = ask()
    for made in (
        trend.gauge(empty, "prefill-0", "queue_depth", 9),
        trend.rate(empty, "prefill-0", "preemptions", 9),
        trend.percentile(empty, "prefill-0", "ttft_seconds", 0.95, 9),
        trend.mean(empty, "prefill-0", "ttft_seconds", 9),
        trend.bandwidth(empty, "prefill-0", 9),
    ):
        assert not made.known
    assert trend.heat(empty, "prefill-0", "kv_transfer_seconds", 9) is None


@pytest.mark.parametrize(
    ("signal", "unit"),
    [("kv_transfer_bandwidth.mean", "bytes/s"), ("kv_transfer_seconds.p99", "seconds"), ("kv_cache_usage", "ratio"), ("kv_transfer_failures", "transfers/s")],
)  # fmt: skip
def test_evidence_has_a_past(signal: str, unit: str) -> None:
    made = trend.of(Ask(b.view(seconds=90), None), "decode-1", signal, 10)
    assert made.known
    assert made.unit == unit


def made(*values: float) -> Trend:
    return Trend(np.array(values), 0.0, 100.0, "seconds")


def test_a_sparkline_shows_a_gap_as_a_gap_and_scales_by_the_limit() -> None:
    drawn = spark(made(0.0, np.nan, 1.0, 3.0), 10, limit=2.0)
    assert "".join(text for text, _ in drawn) == f"▁{GAP}▃█"
    assert [style for _, style in drawn] == ["key", "unknown", "key", "bad"]


def test_peaks_stay_when_there_is_no_room() -> None:
    np.testing.assert_array_equal(squeeze(np.array([1.0, 9.0, np.nan, np.nan]), 2), [9.0, np.nan])


def test_a_plot_fits_and_says_when_nothing_is_known() -> None:
    lines = plot(made(1.0, 2.0, np.nan, 4.0), 60, 6, seconds, limit=3.0)
    assert len(lines) == 6
    assert max(map(width_of, lines)) <= 60
    assert "nothing is known" in plain(plot(made(np.nan), 60, 6, seconds))


def test_shades_are_shares_of_a_bin() -> None:
    series = histogram([0, 50, 100], [[0, 0, 0], [8, 8, 8], [8, 16, 16]])
    found = trend.heat(ask(kv_transfer_seconds=series), "prefill-0", "kv_transfer_seconds", 2)
    assert found is not None
    slow, fast = plain(heat_lines(found, 60, 8)).splitlines()
    assert slow.strip().startswith("<=1s")
    assert slow.rstrip().endswith("50%")
    assert fast.index("█") < slow.index("█")
