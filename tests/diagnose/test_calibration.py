"""Calibration: what ships changes nothing, knots are a line that never falls, and a bad file is said to be one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.diagnose.calibration import calibration, parse
from pdops.errors import CatalogError

HEAD = "schema: pdops/calibration/v1\nfitted_on: null\nknots: "
shares = st.floats(0.0, 1.0)


@given(shares, shares)
def test_what_ships_never_falls_and_stays_a_probability(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert 0.0 <= calibration().at(low) <= calibration().at(high) <= 1.0


def test_between_knots_it_is_straight() -> None:
    made = parse(HEAD + "[[0, 0], [0.5, 0.2], [1, 0.8]]")
    assert [made.at(w) for w in (0.0, 0.25, 0.5, 0.75, 1.0)] == pytest.approx([0.0, 0.1, 0.2, 0.5, 0.8])


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "[[0, 0.5], [1, 0.4]]",
        HEAD + "[[0, 0], [0.5, 0.5], [0.5, 0.6], [1, 1]]",
        HEAD + "[[0.1, 0], [1, 1]]",
        HEAD + "[[0, 0], [1, 1.2]]",
        HEAD + "[[0, 0]]",
        HEAD + "[[0, 0], [1, .nan]]",
        HEAD + "[[0, 0], [1, 1]]\nmore: 1",
        "schema: pdops/calibration/v2\nfitted_on: null\nknots: [[0, 0], [1, 1]]",
        "[",
    ],
)
def test_a_bad_file_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(CatalogError) as caught:
        parse(text)
    assert caught.value.hint
