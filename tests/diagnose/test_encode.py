"""The published JSON: what its schema says, and the same bytes for the same View."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from pdops.diagnose.encode import schema, to_dict, to_json
from pdops.diagnose.engine import diagnose
from pdops.diagnose.text import number, render
from pdops.model.report import Bound, Verdict
from pdops.sources.case import case_view, load_case

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CASES = sorted([*FIXTURES.glob("incidents/[0-9]*.yaml"), *FIXTURES.glob("cases/*.yaml")])


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_every_report_keeps_the_schema(path: Path) -> None:
    view, _ = case_view(load_case(path))
    report = diagnose(view)
    jsonschema.validate(to_dict(report), schema())
    assert to_json(report) == to_json(diagnose(view))
    assert json.loads(to_json(report)) == to_dict(report)
    assert len(report.hypotheses) <= 5
    assert not report.hypotheses or report.verdict is not Verdict.HEALTHY


@pytest.mark.parametrize("path", CASES[:12], ids=lambda p: p.stem)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_text_keeps_its_width(path: Path, width: int) -> None:
    view, _ = case_view(load_case(path))
    text = render(diagnose(view), width=width, full=True)
    longest_word = max(len(word) for word in text.split())
    assert max(len(line) for line in text.splitlines()) <= max(width, longest_word + 16)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "", "?"),
        ("down", "", "down"),
        (0.0, "seconds", "0 s"),
        (0.05, "seconds", "50 ms"),
        (1.5, "seconds", "1.5 s"),
        (Bound(5.0, "ge"), "seconds", "≥5 s"),
        (Bound(0.3, "le"), "seconds", "≤0.3 s"),
        (0.125, "ratio", "12.5%"),
        (7.5e9, "bytes/s", "7.5 GB/s"),
        (900.0, "bytes", "900 B"),
        (1200.0, "requests", "1,200 requests"),
        (12_000.0, "tokens", "12 ktokens"),
    ],
)
def test_numbers_are_written_with_three_digits_and_their_unit(
    value: float | Bound | str | None, unit: str, text: str
) -> None:
    assert text == number(value, unit)
