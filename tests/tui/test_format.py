"""Numbers are short, bounds are marked, and what is not known is `?` with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.model.report import Bound
from pdops.model.series import Reading, unknown
from pdops_tui.models import format as fmt


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0s"), (0.0004, "400us"), (1e-9, "<1us"), (0.0099, "9.9ms"), (0.02, "20ms"), (0.188, "188ms"), (0.3, "0.3s"), (0.71, "710ms"),
        (1.0, "1s"), (3.93, "3.93s"), (12.34, "12.3s"), (140.0, "140s"), (1500.0, "25m"), (34200.0, "9.5h"),
    ],
)  # fmt: skip
def test_seconds(value: float, text: str) -> None:
    assert fmt.seconds(value) == text


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        (fmt.count, 0.0, "0"), (fmt.count, 3.5, "3.5"), (fmt.count, 9500.0, "9500"), (fmt.count, 24100.0, "24.1k"),
        (fmt.per_second, 0.0, "0"), (fmt.per_second, 0.001, "<.01"), (fmt.per_second, 0.42, "0.42"),
        (fmt.per_second, 952.0, "952"), (fmt.per_second, 24100.0, "24.1k"), (fmt.per_second, 999.7, "1k"),
        (fmt.size, 0.0, "0B"), (fmt.size, 12_000.0, "12kB"), (fmt.size, 1.62e9, "1.62GB"),
        (fmt.percent, 0.0, "0"), (fmt.percent, 0.0001, "<0.1"), (fmt.percent, 0.094, "9.4"), (fmt.percent, 0.5, "50"),
    ],
)  # fmt: skip
def test_short_numbers(form: fmt.Form, value: float, text: str) -> None:
    assert form(value) == text


@given(st.floats(0.0, 1e12))
def test_a_number_never_needs_more_than_seven_characters(value: float) -> None:
    assert all(len(form(value)) <= 7 for form in (fmt.count, fmt.per_second, fmt.size))
    assert len(fmt.percent(min(1.0, value))) <= 4
    assert len(fmt.seconds(min(value, 1e6))) <= 5


def test_bounds_are_never_shown_as_numbers() -> None:
    assert fmt.cell(Reading(5.0, "ge"), fmt.seconds).text == ">=5s"
    assert fmt.cell(Reading(0.3, "le"), fmt.seconds).text == "<=0.3s"


def test_a_bound_of_a_part_is_marked_twice() -> None:
    assert fmt.cell(Reading(0.3, "le", missing=("decode-1",)), fmt.seconds).text == "~<=0.3s"


def test_a_part_of_a_pool_is_marked() -> None:
    part = Reading(44.0, n=3, missing=("decode-1",))
    assert fmt.cell(part, fmt.count, partial=">=").text == ">=44"
    made = fmt.cell(part, fmt.count)
    assert made.text == "~44"
    assert "without decode-1" in made.why


def test_unknown_is_a_question_mark_with_a_reason_and_sorts_last() -> None:
    made = fmt.cell(unknown("no events in the window"), fmt.count)
    assert (made.text, made.style, made.sort) == ("?", "unknown", None)
    assert "no events in the window" in made.why


def test_only_what_is_surely_above_is_marked() -> None:
    def mark(reading: Reading) -> str:
        return fmt.marked(fmt.cell(reading, fmt.seconds), reading, bad=1.0).mark

    assert mark(Reading(1.5)) == "X"
    assert mark(Reading(1.0)) == ""
    assert mark(Reading(1.5, "le")) == ""
    assert mark(Reading(5.0, "ge")) == "X"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.0e9, "bytes/s", "1GB/s"), (Bound(5.0, "ge"), "seconds", ">=5s"), (0.5, "ratio", "50%"), (None, "x", "?"),
        ("restart \x1b[2J", "", "restart \ufffd[2J"), (30.0, "transfers", "30 transfers"),
    ],
)  # fmt: skip
def test_evidence(value: object, unit: str, text: str) -> None:
    assert fmt.measured(value, unit) == text  # type: ignore[arg-type]


def test_times() -> None:
    assert fmt.moment(1_795_000_000.0) == "11:06:40Z"
    assert fmt.moment(-30.0, relative=True) == "t=-30s"
    assert fmt.moment(float("inf")) == "?"
    assert fmt.age(0.44) == "0.4s"
    assert fmt.age(None) == "?"
