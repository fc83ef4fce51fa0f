"""Latencies beside their load: more work takes longer without any fault; the same work taking longer is one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pdops.diagnose.conditioned import Shift, onset, shifts
from pdops.diagnose.context import Context
from pdops.model.series import HistogramSeries, Kind, Series, Window
from pdops.model.view import View
from tests.diagnose.build import Given, view

T = np.arange(-900.0, 1.0, 5.0)
SINCE = -200.0


def cumulative(per_bin: np.ndarray) -> np.ndarray:
    return np.concatenate([[0.0], np.cumsum(per_bin[1:])])


def timed(mean: np.ndarray, n: float = 10.0) -> HistogramSeries:
    """Return a histogram that had `n` events of these means in each step."""
    count = np.full(len(T), n)
    empty = np.empty((0, 1))
    return HistogramSeries(np.array([np.inf]), np.empty(0), empty, T, cumulative(mean * count), cumulative(count))


def counter(per_bin: np.ndarray) -> Series:
    return Series(Kind.COUNTER, T, cumulative(per_bin))


def gauge(v: np.ndarray) -> Series:
    return Series(Kind.GAUGE, T, v)


def wave(seed: int = 0, size: float = 1.0) -> np.ndarray:
    """Return a load that comes and goes by a third, with noise."""
    rng = np.random.default_rng(seed)
    return size * (1.0 + 0.3 * np.sin(T / 60.0) + rng.normal(0, 0.05, len(T)))


def prefill(work: np.ndarray, seconds: np.ndarray) -> View:
    given: Given = {"prefill-0": {"prefill_seconds": timed(seconds), "prompt_tokens": counter(work * 10.0)}}
    return view(series=given, interval_s=1.0)


def decode(batch: np.ndarray, gap: np.ndarray) -> View:
    given: Given = {"decode-0": {"itl_seconds": timed(gap, 100.0), "running_requests": gauge(batch)}}
    return view(series=given, interval_s=1.0)


def only(seen: View) -> Shift:
    (one,) = shifts(Context(seen))
    return one


def test_a_steady_cluster_shows_no_change() -> None:
    work = wave(1, 1000.0)
    found = only(prefill(work, 0.05 + work * 2e-4))
    assert not found.unexplained
    assert not found.explained
    assert found.drivers == ("prompt_tokens", "requests")


def test_longer_prompts_explain_a_longer_prefill() -> None:
    work = wave(2, 1000.0) * np.where(T > SINCE, 1.32, 1.0)
    found = only(prefill(work, work * 2e-4))
    assert found.explained
    assert not found.unexplained
    assert found.expected == pytest.approx(found.now, rel=0.05)


def test_the_same_prompts_taking_longer_are_not_explained() -> None:
    work = wave(3, 1000.0)
    found = only(prefill(work, work * 2e-4 * np.where(T > SINCE, 1.6, 1.0)))
    assert found.unexplained
    assert not found.explained
    assert found.beyond is not None
    assert found.beyond.onset_s == pytest.approx(SINCE, abs=15.0)
    assert found.now / found.expected == pytest.approx(1.6, rel=0.1)


def test_far_more_work_than_ever_before_accuses_nobody() -> None:
    work = wave(4, 1000.0) * np.where(T > SINCE, 5.0, 1.0)
    found = only(prefill(work, work * 2e-4))
    assert not found.within
    assert not found.unexplained


def test_a_full_batch_explains_long_gaps_and_a_slow_step_does_not() -> None:
    batch = wave(5, 20.0) * np.where(T > SINCE, 1.3, 1.0)
    assert only(decode(batch, 0.001 * batch)).explained
    assert only(decode(wave(5, 20.0), 0.001 * batch * np.where(T > SINCE, 2.0, 1.0))).unexplained


def test_faster_than_before_is_no_reason_to_look() -> None:
    work = wave(6, 1000.0)
    found = only(prefill(work, work * 2e-4 * np.where(T > SINCE, 0.5, 1.0)))
    assert not found.unexplained
    assert found.beyond is not None
    assert found.beyond.direction == -1


def test_without_five_minutes_of_base_nothing_is_compared() -> None:
    work = wave(7, 1000.0)
    seen = prefill(work, work * 2e-4)
    short = replace(seen, base=Window(-599.0, -300.0))
    assert shifts(Context(short)) == ()
    assert shifts(Context(replace(seen, base=None))) == ()
    assert onset(Context(short), "ttft_seconds") is None


def test_missing_drivers_are_left_out_and_nothing_is_made_up() -> None:
    gap = wave(8, 0.02)
    found = only(decode(np.full(len(T), np.nan), gap))
    assert found.drivers == ()
    assert shifts(Context(view(series={}))) == ()


def test_the_onset_of_what_clients_see() -> None:
    waited = wave(9, 0.4) * np.where(T > SINCE, 4.0, 1.0)
    seen = view(series={"client": {"ttft_seconds": timed(waited)}}, interval_s=1.0)
    found = onset(Context(seen), "ttft_seconds")
    assert found is not None
    assert found.onset_s == pytest.approx(SINCE, abs=15.0)
    assert onset(Context(seen), "itl_seconds") is None
