"""The robust plane: exact on lines, unmoved by a few bad points, no slope for what did not move."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.stats.regression import MIN_POINTS, fit

slopes = st.floats(-5.0, 5.0)


def drivers(seed: int, n: int = 80) -> np.ndarray:
    return np.random.default_rng(seed).uniform([1.0, 100.0], [9.0, 200.0], (n, 2))


@given(st.integers(0, 999), slopes, slopes, st.floats(-10.0, 10.0))
def test_a_plane_is_found(seed: int, a: float, b: float, c: float) -> None:
    x = drivers(seed)
    found = fit(x, c + x @ [a, b])
    assert found is not None
    scale = 1.0 + abs(a) * 9 + abs(b) * 200
    assert found.at(x) == pytest.approx(c + x @ [a, b], abs=5e-3 * scale)


@given(st.integers(0, 999))
def test_one_point_in_ten_may_be_wild(seed: int) -> None:
    x = drivers(seed)
    y = 3.0 + x @ [2.0, 0.0] + np.random.default_rng(seed + 1).normal(0, 0.1, len(x))
    y[::10] += 500.0
    found = fit(x, y)
    assert found is not None
    assert float(found.at(np.array([[5.0, 150.0]]))[0]) == pytest.approx(13.0, abs=0.5)


def test_what_did_not_move_gets_no_slope() -> None:
    x = np.column_stack([np.linspace(1, 5, 40), np.full(40, 7.0)])
    found = fit(x, 2.0 * x[:, 0])
    assert found is not None
    assert found.slopes[1] == 0.0
    assert (found.low.tolist(), found.high.tolist()) == ([1.0, 7.0], [5.0, 7.0])


def test_a_constant_and_no_driver_are_their_median() -> None:
    found = fit(np.zeros((20, 0)), np.full(20, 4.0))
    assert found is not None
    assert found.at(np.zeros((2, 0))).tolist() == [4.0, 4.0]


def test_too_few_points_are_no_line() -> None:
    assert fit(np.zeros((MIN_POINTS - 1, 1)), np.zeros(MIN_POINTS - 1)) is None
