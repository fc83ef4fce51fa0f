"""The table of log lines: what is refused in it, and that reading a line takes time by its length only."""

from __future__ import annotations

import pytest

from pdops.catalog.load import catalog
from pdops.catalog.log_lines import LONGEST, log_lines, parse, recognise
from pdops.errors import CatalogError

HEAD = "schema: pdops/log-lines/v1\nlines:\n"
ENTRY = "  - {{id: {id}, contains: {contains}, component: x, cause: {cause}, layer: engine, meaning: m, first_check: c{more}}}\n"


def entry(id: str = "one", contains: str = "some text", cause: str = "engine-crash", more: str = "") -> str:
    return ENTRY.format(id=id, contains=contains, cause=cause, more=more)


def test_the_shipped_table_is_large_and_sound() -> None:
    specs = log_lines()
    assert len(specs) >= 40
    assert len({s.contains for s in specs}) == len(specs)
    assert {cause for s in specs for cause in s.causes} <= set(catalog().causes)
    assert all(s.meaning and s.first_check and s.component for s in specs)
    assert all(s.seen_in and s.source and s.fix for s in specs)
    assert [s.id for s in specs if s.consequence]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("lines: []", "expected pdops/log-lines/v1"),
        ("- [", "while parsing"),
        (HEAD + entry(cause="bad-luck"), "unknown cause bad-luck"),
        (HEAD + entry(more=", also: [bad-luck]"), "unknown cause bad-luck"),
        (HEAD + entry(contains="abc"), "fewer than four letters"),
        (HEAD + entry(contains="[]"), "fewer than four letters"),
        (HEAD + entry() + entry(), "defined twice"),
        (HEAD + entry(more=", weight: heavy"), "Input should be"),
        (HEAD + entry(more=", colour: red"), "unexpected keyword"),
    ],
)
def test_a_table_that_cannot_be_used_is_told(text: str, why: str) -> None:
    with pytest.raises(CatalogError) as caught:
        parse(text)
    assert why.casefold() in str(caught.value).casefold()
    assert caught.value.hint


def test_texts_in_order_and_case_aside() -> None:
    (spec,) = parse(HEAD + entry(contains="[Timed Out, in Boot]"))
    assert spec.matches("request timed out after 3 s in bootstrapping")
    assert not spec.matches("in boot it timed out")
    assert not spec.matches("timed out")


def test_only_the_start_of_a_line_is_read() -> None:
    assert recognise("x" * (LONGEST - 40) + " CUDA out of memory")
    assert not recognise("x" * LONGEST + " CUDA out of memory")


def test_a_text_may_not_overlap_the_one_before() -> None:
    (spec,) = parse(HEAD + entry(contains="[aaaa, aaaa]"))
    assert not spec.matches("aaaaaaa")
    assert spec.matches("aaaaaaaa")
