"""Centres and distances that a few odd values cannot move."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.stats.robust import MIN_PEERS, median, median_of_rest, quantile, robust_z, skew

levels = st.lists(st.floats(0.0, 1e9), min_size=MIN_PEERS, max_size=30)


@given(levels, st.floats(0.0, 1e9))
def test_distance_has_the_sign_of_the_difference_and_no_infinity(peers: list[float], value: float) -> None:
    z = robust_z(value, peers, floor=0.001)
    centre = median(peers)
    assert z is not None
    assert centre is not None
    assert (z > 0) == (value > centre)
    assert abs(z) <= abs(value - centre) / 0.001 + 1e-9


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=30), st.floats(0.0, 1.0))
def test_a_quantile_is_that_of_numpy(values: list[float], q: float) -> None:
    assert quantile(np.array(values), q) == float(np.quantile(values, q))


@given(st.lists(st.sampled_from([0.0, 1.0, 2.5, 7.0]), min_size=2, max_size=12), st.data())
def test_the_median_of_the_rest_leaves_out_one_value_once(values: list[float], data: st.DataObject) -> None:
    own = data.draw(st.sampled_from(values))
    rest = list(values)
    rest.remove(own)
    assert median_of_rest(sorted(values), own) == median(rest)


@pytest.mark.parametrize(("n", "known"), [(MIN_PEERS - 1, False), (MIN_PEERS, True)])
def test_few_peers_say_nothing(n: int, known: bool) -> None:
    assert (robust_z(5.0, [1.0] * n, 1.0) is not None) is known


@given(st.lists(st.floats(1.0, 2.0), min_size=7, max_size=7), st.floats(1e3, 1e9))
def test_one_odd_peer_does_not_move_the_centre(peers: list[float], odd: float) -> None:
    moved = median([*peers[1:], odd])
    assert moved is not None
    assert 1.0 <= moved <= 2.0


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=30))
def test_skew_is_at_least_even_and_at_most_all_on_one(loads: list[float]) -> None:
    got = skew(loads)
    if got is None:
        assert sum(loads) <= 0
    else:
        assert 1.0 - 1e-9 <= got <= len(loads) + 1e-9


def test_nothing() -> None:
    assert median([]) is None
    assert skew([]) is None
    assert skew([0.0, 0.0]) is None


@pytest.mark.parametrize(("value", "z"), [(0.0, 0.0), (0.1, None)])
def test_identical_peers_without_a_floor_tell_no_distance(value: float, z: float | None) -> None:
    assert robust_z(value, [0.0, 0.0, 0.0, 0.0, 0.0], 0.0) == z
