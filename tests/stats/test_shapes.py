"""Differences of histograms: none by chance, a shift of all, and a part that stands apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.stats.shapes import MIN_EVENTS, Move, difference, ks, psi, shares

EDGES = np.array([0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, np.inf])
parts = st.lists(st.integers(0, 50), min_size=6, max_size=6).filter(lambda v: sum(v) >= MIN_EVENTS)


def counted(values: np.ndarray) -> np.ndarray:
    return np.array([float((values <= e).sum()) for e in EDGES])


def drawn(seed: int, n: int = 400, centre: float = 0.03) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(np.log(centre), 0.3, n)


@given(st.integers(0, 9999))
def test_chance_is_no_difference(seed: int) -> None:
    found = difference(counted(drawn(seed)), counted(drawn(seed + 1)))
    assert found is not None
    assert found.move is Move.SAME


@given(st.integers(0, 9999), st.floats(3.0, 12.0))
def test_all_slower_is_a_shift(seed: int, factor: float) -> None:
    found = difference(counted(drawn(seed, centre=0.03 * factor)), counted(drawn(seed + 1)))
    assert found is not None
    assert found.move is Move.SHIFTED
    assert found.up > 0.5


@given(st.integers(0, 9999), st.floats(0.15, 0.4))
def test_a_part_far_away_is_a_split(seed: int, share: float) -> None:
    values = drawn(seed)
    values[: int(share * len(values))] *= 15.0
    found = difference(counted(values), counted(drawn(seed + 1)))
    assert found is not None
    assert found.move is Move.SPLIT
    assert found.up == pytest.approx(share, abs=0.12)


@given(parts, parts)
def test_distances_are_zero_for_the_same_and_symmetric(a: list[int], b: list[int]) -> None:
    one, other = np.cumsum(a).astype(float), np.cumsum(b).astype(float)
    p, q = shares(one), shares(other)
    assert ks(p, p) == 0.0
    assert psi(p, p, one[-1], one[-1]) == 0.0
    assert ks(p, q) == ks(q, p)
    assert 0.0 <= ks(p, q) <= 1.0
    assert psi(p, q, one[-1], other[-1]) >= 0.0


def test_too_few_events_or_other_edges_are_not_compared() -> None:
    few = np.array([10.0, MIN_EVENTS - 1])
    assert difference(few, np.array([100.0, 200.0])) is None
    assert difference(np.array([100.0, 200.0]), few) is None
    assert difference(np.array([200.0]), np.array([100.0, 200.0])) is None
    assert difference(np.zeros(0), np.zeros(0)) is None
