"""Increases of counters: nothing invented, nothing lost but what a restart hides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.stats.counters import LOOKBACK_S, increase, span

Step = tuple[bool, int]
steps = st.lists(st.tuples(st.booleans(), st.integers(0, 50)), min_size=1, max_size=40)


def played(history: list[Step], start: int = 0) -> tuple[np.ndarray, np.ndarray, int, bool]:
    """Return times, values, true growth, and whether every restart can be seen, of a process that counts.

    A step with True restarts the process just after the sample before it, so that nothing is lost.
    """
    value, true, seen = start, 0, True
    values = [float(start)]
    for restarted, grown in history:
        seen = seen and not (restarted and grown >= value and value > 0)
        value = grown if restarted else value + grown
        true += grown
        values.append(float(value))
    return np.arange(len(values), dtype=np.float64), np.array(values), true, seen


@given(steps, st.integers(0, 1000))
def test_growth_across_restarts(history: list[Step], start: int) -> None:
    t, v, true, every_restart_shows = played(history, start)
    got = increase(t, v, 0.0, t[-1])
    assert got is not None
    if every_restart_shows:
        assert got.value == true
    assert 0 <= got.value <= true
    assert got.n == len(t)
    assert got.span_s == t[-1]
    assert got.rate == pytest.approx(got.value / t[-1])


@given(steps, st.integers(1, 38))
def test_two_windows_add_up_to_one(history: list[Step], cut: int) -> None:
    t, v, _, _ = played(history)
    middle = float(min(cut, len(t) - 1))
    whole = increase(t, v, 0.0, t[-1])
    parts = [increase(t, v, 0.0, middle), increase(t, v, middle, t[-1])]
    assert whole is not None
    assert whole.value == sum(p.value for p in parts if p is not None)
    assert whole.resets == sum(p.resets for p in parts if p is not None)


@given(steps)
def test_without_a_fall_there_is_no_reset(history: list[Step]) -> None:
    t, v, true, _ = played([(False, grown) for _, grown in history], 7)
    got = increase(t, v, 0.0, t[-1])
    assert got is not None
    assert (got.resets, got.value) == (0, true)


@pytest.mark.parametrize(("times", "known"), [([], False), ([5.0], False), ([-5.0, 0.0], False), ([-5.0, 5.0], True)])
def test_one_sample_inside_and_one_before_are_needed(times: list[float], known: bool) -> None:
    t = np.array(times)
    assert (increase(t, t.copy(), 0.0, 10.0) is not None) is known


@pytest.mark.parametrize(("ago", "known"), [(LOOKBACK_S, True), (LOOKBACK_S + 1, False)])
def test_a_sample_long_before_the_window_is_no_start(ago: float, known: bool) -> None:
    t = np.array([-ago, 5.0])
    assert (increase(t, np.array([1.0, 3.0]), 0.0, 10.0) is not None) is known


def test_the_sample_on_the_border_starts_the_window() -> None:
    t = np.array([0.0, 10.0, 20.0])
    assert span(t, 0.0, 20.0) == slice(0, 3)
    assert span(t, 10.0, 20.0) == slice(1, 3)
    assert span(t, 10.5, 20.0) == slice(1, 3)


def test_samples_after_the_window_do_not_count() -> None:
    got = increase(np.array([0.0, 10.0, 20.0]), np.array([0.0, 4.0, 99.0]), 0.0, 10.0)
    assert got is not None
    assert got.value == 4.0


def test_samples_of_one_moment_say_nothing_of_growth() -> None:
    assert increase(np.array([5.0, 5.0]), np.array([1.0, 2.0]), 0.0, 10.0) is None
