"""The parser says what the official one says, and survives what the official one does not."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pdops.catalog.names import split_series, wanted_names
from pdops.errors import UnreachableError
from pdops.sources import exposition
from pdops.sources.exposition import NotExposition, Parsed, Parser

Key = tuple[str, frozenset[tuple[str, str]]]


class Everything:
    """Wants every sample."""

    def __contains__(self, name: object) -> bool:
        return True


def by_key(parsed: Parsed) -> dict[Key, float]:
    keys = [split_series(series) for series in parsed.layout.series]
    assert len(keys) == len(parsed.values)
    return {(name, frozenset(labels.items())): float(v) for (name, labels), v in zip(keys, parsed.values, strict=True)}


def oracle(body: bytes) -> dict[Key, float]:
    """Read a page as the official parser does, but with names as they stand there: it adds `_total` to bare counters."""
    there = set(re.findall(rb"^[a-zA-Z_:][a-zA-Z0-9_:]*", body, re.MULTILINE))
    found = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            name = sample.name if sample.name.encode() in there else sample.name.removesuffix("_total")
            if not name.endswith("_created"):
                found.setdefault((name, frozenset(sample.labels.items())), sample.value)
    return found


def read(body: bytes) -> Parsed:
    return Parser(Everything()).parse(body)


def one(line: bytes) -> dict[str, float]:
    parsed = read(line + b"\n")
    return dict(zip(parsed.layout.series, parsed.values.tolist(), strict=True))


def test_all_real_pages_read_as_the_official_parser_reads_them(pages: dict[str, bytes]) -> None:
    assert len(pages) > 80
    for name, body in pages.items():
        parsed = read(body)
        assert parsed.malformed == 0, name
        np.testing.assert_equal(by_key(parsed), oracle(body), err_msg=name)


def test_only_wanted_families_are_kept_and_the_rest_is_counted(page: Callable[[str], bytes]) -> None:
    body = page("vllm-0.32.0-nixl/decode-load-c4.prom")
    parsed = Parser().parse(body)
    wanted = {key: value for key, value in oracle(body).items() if key[0] in wanted_names()}
    np.testing.assert_equal(by_key(parsed), wanted)
    assert parsed.skipped == len(text_samples(body)) - len(wanted)
    assert "process_start_time_seconds" in {key[0] for key in wanted}
    assert "python_info" in parsed.names
    assert not any(name.endswith("_created") for name, _ in by_key(parsed))


def text_samples(body: bytes) -> list[bytes]:
    return [line for line in body.splitlines() if line and not line.startswith(b"#")]


def test_pages_of_one_series_set_share_one_layout(pages: dict[str, bytes]) -> None:
    parser, other = Parser(), Parser()
    first = parser.parse(pages["vllm-0.32.0-nixl/decode-load-c4.prom"])
    again = parser.parse(pages["vllm-0.32.0-nixl/decode-overload-after.prom"])
    elsewhere = other.parse(pages["vllm-0.32.0-nixl/decode-load-c4.prom"])
    assert first.layout is again.layout
    assert first.layout is elsewhere.layout
    np.testing.assert_equal(by_key(again), by_key(Parser().parse(pages["vllm-0.32.0-nixl/decode-overload-after.prom"])))


def test_a_parser_learns_from_what_another_one_knows(pages: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    body, later = pages["vllm-0.32.0-nixl/decode-load-c4.prom"], pages["vllm-0.32.0-nixl/decode-overload-after.prom"]
    one, other = Parser(), Parser()
    one.parse(body)
    expected = by_key(Parser(set(wanted_names())).parse(later))
    monkeypatch.setattr(Parser, "_learn", None)
    np.testing.assert_equal(by_key(other.parse(later)), expected)
    monkeypatch.undo()
    assert other.parse(b"vllm:num_requests_running 1\n").layout.series == ("vllm:num_requests_running",)
    assert Parser({"up"}).parse(body).layout.series == ()


def test_going_back_to_an_earlier_page_gives_its_layout_again(pages: dict[str, bytes]) -> None:
    parser = Parser()
    prefill, decode = pages["vllm-0.32.0-nixl/prefill-idle.prom"], pages["vllm-0.32.0-nixl/decode-idle.prom"]
    layouts = [parser.parse(body).layout for body in (prefill, decode, prefill, decode)]
    assert layouts[0] is layouts[2]
    assert layouts[1] is layouts[3]
    assert layouts[0] is not layouts[1]


def test_a_changed_comment_keeps_the_layout() -> None:
    parser = Parser(Everything())
    first = parser.parse(b"# HELP a old\na 1\n").layout
    assert parser.parse(b"# HELP a new words\na 2\n").layout is first
    assert parser.parse(b"a 3\n").layout is first


@pytest.mark.parametrize(
    ("line", "series", "value"),
    [
        (b"a 1", "a", 1.0),
        (b"a\t1", "a", 1.0),
        (b"  a  1  ", "a", 1.0),
        (b"a{} 1", "a{}", 1.0),
        (b'a{b="c"}1', 'a{b="c"}', 1.0),
        (b'a { b = "c" , } 1', 'a { b = "c" , }', 1.0),
        (b"a NaN", "a", math.nan),
        (b"a +Inf", "a", math.inf),
        (b"a -Inf", "a", -math.inf),
        (b"a -2.5e-07", "a", -2.5e-7),
        (b"a 1 1700000000000", "a", 1.0),
        (b"a 1 -5", "a", 1.0),
        (b"a 1 1700000000.123", "a", 1.0),
        (b"a 1\r", "a", 1.0),
        (b'a{b="c}d"} 1', 'a{b="c}d"}', 1.0),
        (b'a{b="c # d"} 1', 'a{b="c # d"}', 1.0),
        (b'a{b="c \\" { d"} 1', 'a{b="c \\" { d"}', 1.0),
        (b'a{b="\\\\"} 1', 'a{b="\\\\"}', 1.0),
        (b'a{b="\xc3\xa4"} 1', 'a{b="ä"}', 1.0),
        (b'a_bucket{le="1"} 3 # {trace_id="x}y"} 0.5 1700000000.1', 'a_bucket{le="1"}', 3.0),
        (b'a_bucket{le="1"} 3 1700000000 # {} 0.5', 'a_bucket{le="1"}', 3.0),
    ],
)
def test_one_line_reads(line: bytes, series: str, value: float) -> None:
    np.testing.assert_equal(one(line), {series: value})


@pytest.mark.parametrize(
    "line",
    [
        b"a",
        b"a ",
        b'a{b="c"}',
        b'a{b="c" 1',
        b'a{b="c} 1',
        b"a{b=c} 1",
        b"a{b} 1",
        b"a x",
        b"a 1_000",
        b"a 1 2 3",
        b"a 1 later",
        b"a 0x10",
        b"a 1 2x",
        b"1a 1",
        b"a-b 1",
        b'a{b="\xff"} 1',
        b"\0a 1",
        b"a 1\0",
        b"a " + b"1" * 65,
        b'a{b="' + b"x" * 17_000 + b'"} 1',
        b'"a" 1',
        b"<html>",
    ],
)
def test_a_bad_line_is_counted_and_its_neighbours_are_read(line: bytes) -> None:
    parser = Parser(Everything())
    for value in (1.0, 2.0):
        parsed = parser.parse(b"x %d\n%s\ny 3\n" % (value, line))
        assert (parsed.malformed, parsed.layout.series, parsed.values.tolist()) == (1, ("x", "y"), [value, 3.0])


def test_a_line_that_gets_well_is_read_from_then_on() -> None:
    parser = Parser(Everything())
    assert parser.parse(b'x 1\ny{a="b"\n').layout.series == ("x",)
    assert parser.parse(b'x 1\ny{a="b"} 2\n').values.tolist() == [1.0, 2.0]


def test_of_two_equal_series_the_first_is_read_and_the_other_is_malformed() -> None:
    parsed = read(b'a{b="1",c="2"} 1\na{c="2", b="1"} 5\nd 2\n')
    assert parsed.values.tolist() == [1.0, 2.0]
    assert parsed.malformed == 1


def test_created_samples_are_never_wanted() -> None:
    parsed = Parser({"a_total", "a_created"}).parse(b"a_total 1\na_created 1.7e9\n")
    assert parsed.layout.series == ("a_total",)
    assert parsed.skipped == 1


def test_the_end_mark_of_openmetrics_is_a_comment() -> None:
    assert read(b"a 1\n# EOF").malformed == 0
    assert read(b"a 1\n# EOF\n").malformed == 0


def test_a_last_line_without_its_end_is_dropped() -> None:
    parser = Parser(Everything())
    whole = parser.parse(b"a 1\nb 123\n")
    cut = parser.parse(b"a 1\nb 12")
    assert (cut.layout.series, cut.values.tolist(), cut.malformed) == (("a",), [1.0], 1)
    assert parser.parse(b"a 1\nb 124\n").layout is whole.layout


def test_windows_line_ends_and_blank_lines() -> None:
    parsed = read(b"# HELP a b\r\n\r\na 1\r\n\r\n\n  \nb 2\r\n")
    assert (parsed.values.tolist(), parsed.malformed) == ([1.0, 2.0], 0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a 1\nb 2\nc 3\n", b"a 1\nc 3\n"),
        (b"a 1\nb 2\n", b"b 2\na 1\n"),
        (b"a 1\nnot 2\n", b"a 1\nb 2\n"),
        (b"a 1\n\n", b"a 1\nb 2\n"),
        (b"a 1\n# x\n", b"a 1\nb 2\n"),
        (b"a 1\nb 2\n", b"a 1\nbb 2\n"),
        (b"a 1\nb 2\n", b'a 1\nb {x="y"} 2\n'),
        (b'a 1\nb{x="1"} 2\n', b'a 1\nb{x="10"} 2\n'),
        (b"a 1\nb 2\n", b"a 1\nb 2 1700\n"),
        (b"a 1 1700\nb 2 1700\n", b"a 1\nb 2\n"),
        (b"a 1\nb 2\n", b"a 1\nb x\n"),
        (b"a 1\nb 2\n", b"a 1\nb 2_0\n"),
    ],
)
def test_a_change_of_the_page_is_noticed(before: bytes, after: bytes) -> None:
    parser = Parser({"a", "b", "bb", "c"})
    parser.parse(before)
    changed, fresh = parser.parse(after), Parser({"a", "b", "bb", "c"}).parse(after)
    assert changed.layout.series == fresh.layout.series
    assert changed.values.tolist() == fresh.values.tolist()
    assert (changed.skipped, changed.malformed) == (fresh.skipped, fresh.malformed)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "it is empty"),
        (b" \n\n", "it is empty"),
        (b"<!doctype html><html><body>404</body></html>", "it is HTML or XML"),
        (b'{"detail":"Not Found"}', "it is JSON"),
        (b"[]\n", "it is JSON"),
        (b"\x1f\x8b\x08\x00abc", "it is compressed"),
        (b"\x00\x01\x02", "it is binary"),
        (b"# HELP a b\n# TYPE a counter\n", "it has comments but no sample"),
        (b"Not Found", "no line of it is a sample"),
        (b"Internal Server Error\n", "no line of it is a sample"),
    ],
)
def test_what_is_no_exposition_says_what_it_is(body: bytes, reason: str) -> None:
    with pytest.raises(NotExposition) as caught:
        read(body)
    assert caught.value.reason == reason
    assert isinstance(caught.value, UnreachableError)
    assert caught.value.hint


def test_a_page_without_wanted_samples_is_still_a_page() -> None:
    parsed = Parser({"a"}).parse(b"other 1\n")
    assert (parsed.layout.series, parsed.values.shape, parsed.skipped) == ((), (0,), 1)
    assert parsed.names == {"other"}


def test_huge_lines_and_very_many_lines_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    quotes = b"a{" + b'b="c",' * 400_000 + b"} 1\n"
    assert read(b"x 1\n" + quotes + b"x" * 2_000_000 + b"\n" + b"y " + b"1" * 2_000_000 + b"\n").malformed == 3
    monkeypatch.setattr(exposition, "MAX_LINES", 10)
    parsed = read(b"".join(b"a%d 1\n" % i for i in range(20)))
    assert (len(parsed.layout.series), parsed.malformed) == (10, 1)


@pytest.mark.parametrize(
    ("text", "stamp_s"),
    [
        (b"a 1\nb 2\n", None),
        (b"a 1 1764420250500\nb 2\n", 1_764_420_250.5),
        (b"a 1 1764420250500\nb 2 1764420240500\n", 1_764_420_240.5),
        (b"a 1 1764420250.5\nb 2 1764420251\n", 1_764_420_250.5),
        (b"a 1 0\nb 2 -5\n", -5.0),
        (b"a 1\nb 2 # {} 1 5\n", None),
    ],
)
def test_the_oldest_time_a_page_gives_is_told_when_it_is_learned_and_after(text: bytes, stamp_s: float | None) -> None:
    parser = Parser(Everything())
    assert [parser.parse(text).stamp_s for _ in range(2)] == [stamp_s, stamp_s]
