"""CUSUM: lasting changes are found and placed, noise, spikes and what is over again are not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.stats.changes import MIN_NORMAL, change

N = 180
NORMAL_END = 119.0
T = np.arange(N, dtype=np.float64)

seeds = st.integers(0, 10_000)


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(10.0, 1.0, N)


@given(seeds)
def test_noise_is_no_change(seed: int) -> None:
    assert change(T, noise(seed), NORMAL_END, 0.5) is None


@given(seeds, st.integers(122, 160), st.sampled_from([1, -1]), st.floats(4.0, 40.0))
def test_a_step_is_found_where_it_happened(seed: int, at: int, direction: int, size: float) -> None:
    v = noise(seed)
    v[at:] += direction * size
    found = change(T, v, NORMAL_END, 0.5)
    assert found is not None
    assert found.direction == direction
    assert abs(found.onset_s - at) <= 3
    assert found.size == pytest.approx(direction * size, abs=1.5)


@given(seeds, st.floats(4.0, 1000.0))
def test_one_spike_is_no_change(seed: int, size: float) -> None:
    v = noise(seed)
    v[150] += size
    assert change(T, v, NORMAL_END, 0.5) is None


@given(seeds, st.integers(10, 25))
def test_what_is_over_again_is_no_change(seed: int, length: int) -> None:
    v = noise(seed)
    v[125 : 125 + length] += 20.0
    assert change(T, v, NORMAL_END, 0.5) is None


@given(seeds, st.floats(0.01, 100.0), st.floats(-1e3, 1e3))
def test_the_unit_does_not_matter(seed: int, scale: float, offset: float) -> None:
    v = noise(seed)
    v[140:] += 6.0
    one, other = change(T, v, NORMAL_END, 0.5), change(T, scale * v + offset, NORMAL_END, scale * 0.5)
    assert one is not None
    assert other is not None
    assert (one.onset_s, one.direction) == (other.onset_s, other.direction)


def test_less_than_the_floor_is_no_change_however_quiet_it_was() -> None:
    v = np.where(T > 130, 10.1, 10.0)
    assert change(T, v, NORMAL_END, 0.2) is None
    found = change(T, v, NORMAL_END, 0.01)
    assert found is not None
    assert found.onset_s == 131.0


def test_without_a_usual_course_nothing_is_said() -> None:
    v = np.where(T > 130, 30.0, 10.0)
    assert change(T[: MIN_NORMAL + 60], v[: MIN_NORMAL + 60], MIN_NORMAL - 2.0, 0.1) is None
    assert change(T[:120], v[:120], NORMAL_END, 0.1) is None
    assert change(T[:0], v[:0], NORMAL_END, 0.1) is None
