"""Text from outside cannot move, colour or hide what is drawn, and is measured as the terminal library measures it."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from pdops_tui.draw.line import cut, fill, fit, plain, wrap
from pdops_tui.models.text import UNSAFE, cells, clean, clip, clip_middle, pad, to_ascii

ANY = st.text(st.characters(codec=None), max_size=60)


def test_every_character_is_as_wide_as_the_terminal_library_says() -> None:
    wrong = []
    for code in range(0x20, sys.maxunicode + 1):
        char = chr(code)
        if unicodedata.category(char) in ("Cn", "Co", "Cs"):
            continue
        shown = clean(char)
        if cells(shown) != cell_len(shown) or not shown:
            wrong.append(hex(code))
    assert wrong == []


def test_characters_nobody_assigned_are_not_shown() -> None:
    for char in ("\U000e1234", "\ue000", "\ud800", "\u0378"):
        assert clean(char) == UNSAFE


@given(ANY)
def test_cleaned_text_holds_nothing_that_steers_a_terminal(text: str) -> None:
    cleaned = clean(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp", "Mn", "Me") for c in cleaned)
    assert cells(cleaned) == cell_len(cleaned)
    assert clean(cleaned) == cleaned


@given(ANY, st.integers(0, 40))
def test_cut_text_fits_exactly(text: str, width: int) -> None:
    cleaned = clean(text)
    assert cells(clip(cleaned, width)) <= width
    assert cells(clip_middle(cleaned, width)) <= width
    assert cells(pad(clip(cleaned, width), width)) == width


@given(ANY)
def test_ascii_text_keeps_its_width(text: str) -> None:
    cleaned = clean(text)
    spelled = to_ascii(cleaned)
    assert spelled.isascii()
    assert cells(spelled) == cells(cleaned)


@given(ANY, st.integers(2, 30))
def test_wrapped_text_loses_nothing_but_blanks(text: str, width: int) -> None:
    cleaned = clean(text)
    lines = wrap(cleaned, width)
    assert all(cells(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == cleaned.replace(" ", "")


@given(st.lists(st.tuples(ANY.map(clean), st.sampled_from(["", "bad", "dim"])), max_size=5), st.integers(0, 50))
def test_lines_are_cut_and_filled_to_their_width(spans: list[tuple[str, str]], width: int) -> None:
    line = tuple(spans)
    assert sum(cells(t) for t, _ in cut(line, width)) <= width  # type: ignore[arg-type]
    assert sum(cells(t) for t, _ in fill(line, width)) == width  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", f"{UNSAFE}[31mred{UNSAFE}[0m"),
        ("\x9b2J", f"{UNSAFE}2J"),
        ("a\nb\tc", "a b c"),
        ("[bold]x[/]", "[bold]x[/]"),
        ("e\u0301", "é"),
        ("a\u202eb\u200dc", f"a{UNSAFE}b{UNSAFE}c"),
        ("≥ 5", ">= 5"),
        ("节点", "节点"),
    ],
)
def test_known_attacks_become_harmless(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_overlong_text_is_cut_before_it_costs_anything() -> None:
    assert len(clean("x" * 1_000_000)) == 4_096


def test_the_ends_of_an_id_are_kept() -> None:
    assert clip_middle("vllm-decode-7d9f-x7k2p", 13) == "vllm-d…-x7k2p"


def test_the_least_needed_part_gives_way_first() -> None:
    parts = [(0, (("name", ""),)), (2, (("extra", ""),)), (1, (("more", ""),))]
    assert plain([fit(parts, 20)]) == "name  extra  more\n"  # type: ignore[arg-type]
    assert plain([fit(parts, 12)]) == "name  more\n"  # type: ignore[arg-type]
    assert plain([fit(parts, 3)]) == "na…\n"  # type: ignore[arg-type]
