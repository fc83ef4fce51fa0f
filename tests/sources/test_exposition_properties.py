"""Whatever the page, the fast way and the slow way agree, and nothing is invented."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from pdops.catalog.names import split_series
from pdops.sources.exposition import NotExposition, Parsed, Parser

WANTED = {"a", "a_sum", "a_count", "a_bucket", "vllm:b_total", "process_start_time_seconds"}
NAMES = st.sampled_from([*sorted(WANTED), "c", "d_created", "a_created", "e:f"])
LABEL_NAMES = st.sampled_from(["le", "engine", "model_name", "x", "_y1"])
LABEL_VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["", "}", '"', "\\", "\n", "\\n", "#", " # {", ',x="', "+Inf", "{", "ä", "a b"]
)
VALUES = st.floats() | st.integers(-(2**53), 2**53).map(float)


@dataclass(frozen=True)
class Sample:
    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    stamp: int | None

    def line(self) -> str:
        labels = ",".join(f'{k}="{_escaped(v)}"' for k, v in self.labels)
        stamp = "" if self.stamp is None else f" {self.stamp}"
        return f"{self.name}{'{' + labels + '}' if labels else ''} {_number(self.value)}{stamp}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return ("+Inf" if value > 0 else "-Inf") if math.isinf(value) else repr(value)


samples = st.builds(
    Sample,
    NAMES,
    st.dictionaries(LABEL_NAMES, LABEL_VALUES, max_size=3).map(lambda d: tuple(d.items())),
    VALUES,
    st.none() | st.integers(-(10**13), 10**13),
)


@st.composite
def histograms(draw: st.DrawFn) -> list[Sample]:
    edges = sorted(draw(st.sets(st.floats(0, 100), min_size=1, max_size=4)))
    counts = sorted(draw(st.lists(st.integers(0, 10**6), min_size=len(edges) + 1, max_size=len(edges) + 1)))
    buckets = [
        Sample("a_bucket", (("le", _number(edge)),), float(n), None)
        for edge, n in zip([*edges, math.inf], counts, strict=True)
    ]
    return [
        *buckets,
        Sample("a_sum", (), draw(st.floats(-1e6, 1e6)), None),
        Sample("a_count", (), float(counts[-1]), None),
    ]


bodies = (
    st.lists(samples, min_size=1, max_size=8)
    | st.tuples(histograms(), st.lists(samples, max_size=4)).map(lambda p: p[0] + p[1])
).map(lambda found: list({(s.name, frozenset(s.labels)): s for s in found}.values()))


def _read(parser: Parser, body: bytes) -> Parsed | str:
    try:
        return parser.parse(body)
    except NotExposition as error:
        return error.reason


def _by_key(parsed: Parsed) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    keys = [split_series(series) for series in parsed.layout.series]
    return {(n, frozenset(ls.items())): float(v) for (n, ls), v in zip(keys, parsed.values, strict=True)}


def _alike(warm: Parsed | str, fresh: Parsed | str) -> None:
    """Compare all but the counts: a damaged value of a sample that nobody wants may go unnoticed, nothing else may."""
    if isinstance(warm, Parsed) and isinstance(fresh, Parsed):
        assert warm.layout.series == fresh.layout.series
        np.testing.assert_array_equal(warm.values, fresh.values)
    elif isinstance(warm, Parsed):
        assert not warm.layout.series
    else:
        assert warm == fresh


@given(bodies)
def test_generated_pages_read_as_the_official_parser_reads_them(found: list[Sample]) -> None:
    body = "".join(s.line() + "\n" for s in found)
    parsed = Parser(WANTED).parse(body.encode())
    expected = {
        (s.name, frozenset(s.labels.items())): s.value
        for family in text_string_to_metric_families(body)
        for s in family.samples
        if s.name in WANTED
    }
    np.testing.assert_equal(_by_key(parsed), expected)
    assert parsed.malformed == 0
    assert parsed.skipped == len(found) - len(expected)


mutations = st.lists(
    st.tuples(st.sampled_from(["drop", "swap", "double", "blank", "comment", "value", "cut"]), st.integers(0, 10**6)),
    max_size=4,
)


def _mutated(lines: list[str], changes: list[tuple[str, int]]) -> list[str]:
    lines = list(lines)
    for what, where in changes:
        at = where % (len(lines) + 1)
        there = at < len(lines)
        match what:
            case "drop" if there:
                del lines[at]
            case "swap" if there:
                lines[0], lines[at] = lines[at], lines[0]
            case "double" if there:
                lines.insert(at, lines[at])
            case "blank":
                lines.insert(at, "")
            case "comment":
                lines.insert(at, f"# HELP x {where}")
            case "value" if there:
                lines[at] = lines[at].rsplit(" ", 1)[0] + f" {where}"
            case "cut" if there:
                lines[at] = lines[at][: where % (len(lines[at]) + 1)]
            case _:
                pass
    return lines


@given(st.lists(st.tuples(st.lists(samples, min_size=1, max_size=6), mutations), min_size=2, max_size=4))
def test_what_was_read_before_never_changes_what_is_read_now(
    rounds: list[tuple[list[Sample], list[tuple[str, int]]]],
) -> None:
    parser = Parser(WANTED)
    for found, changes in rounds:
        plain = [s.line() for s in found]
        answers = []
        for lines in (plain, _mutated(plain, changes), plain):
            body = "".join(line + "\n" for line in lines).encode()
            answers.append(_read(parser, body))
            _alike(answers[-1], _read(Parser(WANTED), body))
        before, between, after = (a.layout if isinstance(a, Parsed) else None for a in answers)
        assert before is after
        if before is not None and between is not None:
            assert (before is between) == (before.series == between.series)


@given(bodies)
@settings(max_examples=30)
def test_a_page_cut_anywhere_gives_nothing_that_was_not_there(found: list[Sample]) -> None:
    body = "".join(f"# HELP {s.name} words\n{s.line()}\n" for s in found).encode()
    warm = Parser(WANTED)
    whole = _by_key(warm.parse(body))
    for cut in range(len(body)):
        for parser in (warm, Parser(WANTED)):
            part = _read(parser, body[:cut])
            if isinstance(part, Parsed):
                values = _by_key(part)
                assert values.keys() <= whole.keys()
                np.testing.assert_equal(values, {key: whole[key] for key in values})


@given(st.binary(max_size=300))
def test_hostile_bytes_are_survived(body: bytes) -> None:
    _read(Parser(WANTED), body)


@given(st.lists(samples, min_size=1, max_size=6), st.integers(0, 10**6), st.binary(min_size=1, max_size=3))
def test_damaged_pages_are_survived_and_read_alike_by_old_and_new_parsers(
    found: list[Sample], where: int, junk: bytes
) -> None:
    body = "".join(s.line() + "\n" for s in found).encode()
    parser = Parser(WANTED)
    parser.parse(body)
    at = where % len(body)
    damaged = body[:at] + junk + body[at + len(junk) :]
    _alike(_read(parser, damaged), _read(Parser(WANTED), damaged))
