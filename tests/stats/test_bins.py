"""Bins: nothing is lost, nothing is made up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.stats.bins import averaged, grid, grown, places


@given(st.floats(-1e6, 1e9), st.floats(0.0, 2000.0), st.floats(0.5, 60.0))
def test_a_grid_ends_at_the_end_and_stays_inside(start: float, span: float, width: float) -> None:
    edges = grid(start, start + span, width)
    assert edges[-1] == start + span
    assert edges[0] >= start - 1e-3
    assert len(edges) == pytest.approx(span / width + 0.5, abs=0.5001)


@given(st.lists(st.floats(0.0, 100.0), min_size=61, max_size=61))
def test_bins_of_a_counter_add_up_to_its_growth(steps: list[float]) -> None:
    t = np.arange(61, dtype=np.float64)
    v = np.cumsum(steps)
    made = grown(v, places(t, grid(0.0, 60.0, 5.0)))
    assert made.sum() == pytest.approx(v[-1] - v[0], abs=1e-6)
    assert (made >= 0).all()


def test_a_restart_counts_what_came_after_it() -> None:
    t = np.arange(0.0, 21.0, 5.0)
    made = grown(np.array([0.0, 10.0, 20.0, 3.0, 8.0]), places(t, grid(0.0, 20.0, 5.0)))
    assert made.tolist() == [10.0, 10.0, 3.0, 5.0]


def test_a_gap_is_unknown() -> None:
    t = np.array([0.0, 5.0, 30.0, 35.0])
    made = grown(np.array([0.0, 1.0, 9.0, 10.0]), places(t, grid(0.0, 35.0, 5.0)))
    assert [None if np.isnan(x) else x for x in made] == [1.0, None, None, None, None, None, 1.0]
    level = averaged(t, np.array([1.0, 2.0, 3.0, 4.0]), grid(0.0, 35.0, 5.0))
    assert [None if np.isnan(x) else x for x in level] == [2.0, None, None, None, None, 3.0, 4.0]


def test_without_samples_all_is_unknown() -> None:
    empty = np.empty(0)
    assert np.isnan(grown(empty, places(empty, grid(0.0, 20.0, 5.0)))).all()
    assert np.isnan(averaged(empty, empty, grid(0.0, 20.0, 5.0))).all()


def test_a_gauge_is_averaged_in_its_bin() -> None:
    t = np.arange(1.0, 11.0)
    assert averaged(t, t, grid(0.0, 10.0, 5.0)).tolist() == [3.0, 8.0]
