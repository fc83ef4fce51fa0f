"""A Report as a page, as Markdown, as a table and as news: complete, safe with hostile names, equal for equal input."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from pdops.diagnose import report_html, report_markdown
from pdops.diagnose.changes import changed, line
from pdops.diagnose.engine import diagnose
from pdops.diagnose.report_cells import table
from pdops.diagnose.report_curves import curves
from pdops.diagnose.report_svg import draw
from pdops.diagnose.text import render as text
from pdops.model.frame import Event, EventKind, LogLine
from pdops.model.report import (
    Bound,
    DoNot,
    Evidence,
    Hop,
    Hypothesis,
    Layer,
    Missing,
    Report,
    RuledOut,
    Scope,
    Symptom,
    TtftStage,
    Verdict,
)
from pdops.model.series import HistogramSeries
from pdops.model.view import View
from tests.diagnose.build import but, sound, view, worker

HOSTILE = "</title><script>alert(1)</script>\"'><img src=x onerror=y>\u202e[a](http://x/) @channel <!here> `b` | *c*\x1b[31m\n# d"
VOID = {"meta", "br"}


def slow() -> View:
    pairs = {"pair:prefill-0>decode-0": {"kv_transfer_bandwidth.mean": (7.5e9, 1.0e9)}}
    return view(
        workers=("prefill-0", "decode-0"),
        series=but(sound(), {"client": {"ttft_seconds.p95": (0.4, 4.0)}, **pairs}),
        events=[Event(t_s=-400.0, kind=EventKind.CONFIG_CHANGE, worker="decode-0")],
    )


def everything(said: str) -> Report:
    """Return a report in which every text from outside is `said`."""
    scope = Scope("worker", said)
    piece = Evidence(
        signal=said, scope=scope, observed=said, expected=Bound(2.0, "ge"), basis="peer", unit=said, window_s=60.0
    )
    item = Hypothesis(
        fault=1,
        cause=said,
        check=said,
        layer=Layer.TRANSFER,
        confidence=0.9,
        scopes=(scope,),
        for_=(piece,),
        against=(piece,),
        missing=(Missing(signal=said, why=said, fix=said, scope=scope),),
        next=(said,),
        runbooks=(said,),
        do_not=(DoNot(action=said, why=said),),
    )
    return Report(
        cluster=said,
        at=None,
        at_s=0.0,
        verdict=Verdict.FAULT,
        symptoms=(Symptom.TTFT,),
        ttft=(
            TtftStage(stage=said, seconds=None, share=None, why=said),
            TtftStage(stage=said, seconds=Bound(1.0, "ge"), share=0.5, why=None),
        ),
        hops=(Hop(question=said, answer=said),),
        hypotheses=(item, replace(item, cause=said + "2"), replace(item, fault=2)),
        ruled_out=(RuledOut(cause=said, because=said, scope=scope),),
        missing=item.missing,
    )


class Page(HTMLParser):
    """Notes the elements of a page, and that every one is closed in turn."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    seen = slow()
    report = diagnose(seen)
    page = report_html.render(seen, report)
    read = Page(page)
    assert read.open == []
    tags = {tag for tag, _ in read.seen}
    assert not tags & {"script", "link", "img", "iframe", "a", "object", "form"}
    assert not re.search(r"https?://|url\(|@import|\bon\w+=", page)
    assert any("default-src 'none'" in (a.get("content") or "") for t, a in read.seen if t == "meta")
    assert "prefers-color-scheme: dark" in page
    assert page == report_html.render(seen, diagnose(seen))


def test_the_page_tells_all_that_the_report_does() -> None:
    report = everything("said")
    words = " ".join(Page(report_html.render(view(), report)).text)
    for part in (
        "FAULT",
        "said",
        "≥2 said",
        "for",
        "against",
        "Next",
        "Do not",
        "Ruled out (1)",
        "Missing (1)",
        "≥1 s",
    ):
        assert part in words
    assert "Also weighed for fault 1: said2" in words
    assert "Fault 2: said" in words


def test_names_from_outside_are_only_ever_text_on_the_page() -> None:
    hostile = view(workers=[worker("prefill-0"), worker("decode-0", node=HOSTILE, zone=HOSTILE)], series=sound())
    hostile = replace(
        hostile,
        logs=(LogLine(t_s=-1.0, worker=HOSTILE, line=HOSTILE),),
        events=(Event(t_s=-1.0, kind=EventKind.RESTART, worker=HOSTILE, detail=HOSTILE),),
    )
    page = report_html.render(hostile, everything(HOSTILE))
    read = Page(page)
    assert read.open == []
    assert not {tag for tag, _ in read.seen} & {"script", "img", "a"}
    assert not any(name.startswith("on") for _, attrs in read.seen for name in attrs)
    assert not set("\x1b\u202e") & set(page)


def test_every_drawing_is_well_formed_and_marks_windows_expectation_and_events() -> None:
    seen = slow()
    drawn = curves(seen, diagnose(seen))
    assert {(c.signal, c.where) for c in drawn} >= {
        ("ttft_seconds.p95", "client"),
        ("kv_transfer_bandwidth.mean", "prefill-0>decode-0"),
    }
    for curve in drawn:
        root = ET.fromstring(draw(curve))
        looks = [part.get("class") for part in root]
        assert {"now", "base", "curve", "mark"} <= set(looks)
        assert ("expected" in looks) is (curve.expected is not None)
    bandwidth = next(c for c in drawn if c.signal == "kv_transfer_bandwidth.mean")
    assert (bandwidth.known[0], bandwidth.known[-1], bandwidth.expected) == (7.5e9, 1.0e9, 7.5e9)


def about(signal: str, key: str) -> Report:
    piece = Evidence(signal=signal, scope=Scope("worker", key), observed=1.0, expected=None, basis="peer")
    base = everything("x")
    return replace(base, hypotheses=(replace(base.hypotheses[0], for_=(piece,), against=()),))


def test_a_counter_is_drawn_as_its_rate_and_a_histogram_as_its_mean() -> None:
    t = np.arange(-900.0, 1.0, 15.0)
    n = np.arange(len(t)) * 10.0
    times = HistogramSeries(np.array([4.0, np.inf]), t, np.stack([n, n], axis=1), t, n * 0.5, n)
    seen = view(series={"decode-0": {"kv_transfer_failures": (600.0, 60.0), "kv_transfer_seconds": times}})
    (failures,) = curves(seen, about("kv_transfer_failures", "decode-0"))
    assert failures.unit.endswith("/s")
    assert failures.known[0] == pytest.approx(1.0)
    assert failures.known[-1] == pytest.approx(0.2)
    (seconds,) = curves(seen, about("kv_transfer_seconds.mean", "decode-0"))
    assert set(seconds.known) == {0.5}


def test_where_nothing_is_known_nothing_is_drawn() -> None:
    gap = [(float(t), 5.0) for t in range(-900, -600, 15)] + [(float(t), 6.0) for t in range(-300, 1, 15)]
    seen = view(series={"decode-0": {"queue_depth": gap}})
    (curve,) = curves(seen, about("queue_depth", "decode-0"))
    inside = [v for t, v in curve.points if -550 < t < -320]
    assert inside
    assert set(inside) == {None}
    assert draw(curve).count("M") == 2
    assert curves(seen, about("no_such_signal", "decode-0")) == ()
    assert curves(seen, about("running_requests", "decode-0")) == ()


def test_a_view_without_any_data_makes_a_page() -> None:
    empty = view(workers=())
    assert Page(report_html.render(empty, diagnose(empty))).open == []
    assert Page(report_html.render(replace(empty, start_s=0.0), diagnose(empty))).open == []


def test_markdown_names_the_likeliest_first_and_all_of_it_in_full() -> None:
    report = diagnose(slow())
    assert report.top is not None
    short, full = report_markdown.render(report), report_markdown.render(report, full=True)
    assert short.startswith(
        "## FAULT: test, t=0 s\n\n**transport-fallback-slow** in layer transfer at **prefill-0&gt;decode-0**"
    )
    assert "| for | kv_transfer_bandwidth.mean | prefill-0&gt;decode-0 | 1 GB/s | 7.5 GB/s |" in short
    assert "**do not** scale-out-prefill" in short
    assert full.count("### Fault") == len(report.hypotheses) > short.count("### Fault") == 1
    assert "### Also weighed" in short


def test_no_markup_link_or_mention_comes_from_outside_into_markdown() -> None:
    said = report_markdown.render(everything(HOSTILE), full=True)
    assert not re.search(r"<|@\w|://|(?<!\\)\[|(?<!\\)`|\u202e|\x1b", said)
    rows = [row for row in said.splitlines() if row.startswith("| for")]
    assert rows
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 7 for row in rows)
    assert "\n# d" not in said


def test_a_table_keeps_its_width_and_loses_no_word() -> None:
    rows = [("+", "kv_transfer_bandwidth.mean", "prefill-0>decode-1", "word " * 12, "other " * 9, "physics, 300 s")]
    for width in (60, 80, 100, 200):
        lines = table(rows, width)
        assert max(map(len, lines)) <= width
        assert " ".join(lines).split().count("word") == 12
    assert "expected" not in table([("+", "log", "w", "x", "", "log")], 80)[0]


@pytest.mark.parametrize("width", [40, 72, 100])
def test_text_stays_within_its_width_and_shows_all_parts(width: int) -> None:
    said = text(diagnose(slow()), width=width)
    for part in ("observed", "expected", "how it was found", "next:", "do not", "ruled out"):
        assert part in said
    if width >= 72:
        assert max(map(len, said.splitlines())) <= width


def test_only_another_verdict_cause_or_place_is_news() -> None:
    fault = diagnose(slow())
    assert fault.top is not None
    well = diagnose(view(series=sound()))
    surer = replace(fault, hypotheses=(replace(fault.top, confidence=0.99), *fault.hypotheses[1:]))
    moved = replace(fault, hypotheses=(replace(fault.top, scopes=(Scope("worker", "decode-0"),)),))
    assert changed(None, well)
    assert not changed(well, well)
    assert changed(well, fault)
    assert not changed(fault, surer)
    assert not changed(fault, replace(fault, symptoms=()))
    assert changed(fault, moved)
    assert changed(fault, well)
    assert line(well, fault).startswith(
        "t=0 s  healthy -> fault: transport-fallback-slow at prefill-0>decode-0 (transfer, 0.9"
    )
    assert "next: compare UCX_TLS" in line(well, fault)
    assert "next:" not in line(fault, moved)
    assert line(None, well) == "t=0 s  healthy"


def test_what_many_workers_lack_for_one_reason_is_one_line_and_full_names_each() -> None:
    gaps = tuple(
        Missing(signal="all signals", why=f"decode-{n} is silent", fix="look", scope=Scope("worker", f"decode-{n}"))
        for n in range(64)
    )
    report = diagnose(slow())
    top = replace(report.hypotheses[0], missing=gaps)
    said = text(replace(report, missing=gaps, hypotheses=(top,)), width=200)
    several = "all signals (64: decode-0, decode-1, decode-2 and 61 more): each is silent"
    assert [x.strip() for x in said.splitlines() if "all signals" in x] == [f"? {several}", f"{several} -> look"]
    full = text(replace(report, missing=gaps), width=200, full=True)
    assert all(f"all signals (decode-{n}): decode-{n} is silent -> look" in full for n in range(64))


def test_a_page_and_markdown_gather_what_several_lack_as_the_text_does() -> None:
    report = diagnose(slow())
    gaps = tuple(
        Missing(signal="all signals", why=f"decode-{n} is silent", fix="look", scope=Scope("worker", f"decode-{n}"))
        for n in range(8)
    )
    given = replace(report, missing=gaps, hypotheses=(replace(report.hypotheses[0], missing=gaps),))
    where = "8: decode-0, decode-1, decode-2 and 5 more"
    page, short = report_html.render(slow(), given), report_markdown.render(given)
    assert f"<td>all signals</td><td>{where}</td><td>each is silent</td>" in page
    assert f"<li>all signals ({where}): each is silent (look)</li>" in page
    assert f"- all signals ({where}): each is silent → look" in short
    assert f"- not known: all signals ({where}): each is silent" in short
    assert report_markdown.render(given, full=True).count("is silent → look") == 8
