"""A Report for people, as plain text of a given width; styles are left to the caller."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator

from pdops.model.report import Bound, Evidence, Hypothesis, Observed, Report, TtftStage, Verdict

Style = Callable[[str, str], str]
"""Takes a text and one of `title good bad warn dim` and returns it dressed."""

_MARK = {Verdict.FAULT: "[X]", Verdict.OVERLOAD: "[!]", Verdict.UNKNOWN: "[?]", Verdict.HEALTHY: "ok "}
_LOOK = {Verdict.FAULT: "bad", Verdict.OVERLOAD: "warn", Verdict.UNKNOWN: "warn", Verdict.HEALTHY: "good"}
_CONTROL = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x09\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What names from outside could do to a terminal; colours, which styles use, are let through."""
_UNITS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))


def plain(text: str, _look: str) -> str:
    """Return text undressed."""
    return text


def render(report: Report, *, width: int = 100, style: Style = plain, full: bool = False) -> str:
    """Return the report as text. With `full` everything ruled out and missing is listed, else the first few."""
    lines = [*_head(report, style), "", *_ttft(report.ttft, style), *_hops(report, style)]
    for hypothesis in report.hypotheses:
        lines += ["", *_hypothesis(hypothesis, style)]
    limit = None if full else 4
    if report.ruled_out:
        lines += ["", style("ruled out", "title")]
        lines += [f"  {r.cause}: {r.because}" for r in report.ruled_out[:limit]]
        lines += _more(len(report.ruled_out), limit)
    if report.missing:
        lines += ["", style("missing", "title")]
        for item in report.missing[:limit]:
            where = f" ({item.scope})" if item.scope else ""
            fix = f" -> {item.fix}" if item.fix else ""
            lines.append(f"  {item.signal}{where}: {item.why}{fix}")
        lines += _more(len(report.missing), limit)
    text = "\n".join(part for line in lines for part in _wrap(line, width)) + "\n"
    return _CONTROL.sub("", text)


def number(value: Observed, unit: str = "") -> str:
    """Return a value with its unit, three significant digits, bounds marked."""
    if value is None:
        return "?"
    if isinstance(value, str):
        return value
    sign = ""
    if isinstance(value, Bound):
        sign = "≥" if value.bound == "ge" else "≤"
        value = value.value
    if unit == "ratio":
        return f"{sign}{value:.1%}"
    if unit == "seconds":
        return f"{sign}{value * 1000:.3g} ms" if 0 < abs(value) < 0.1 else f"{sign}{value:.3g} s"
    short = unit.replace("bytes", "B")
    for prefix, scale in _UNITS:
        if abs(value) >= scale * (1 if short.startswith("B") else 10):
            return f"{sign}{value / scale:.3g} {prefix}{short}".rstrip()
    written = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{sign}{written} {short}".rstrip()


def _head(report: Report, style: Style) -> Iterator[str]:
    when = report.at or f"t={report.at_s:g} s"
    look = _LOOK[report.verdict]
    yield style(f"{_MARK[report.verdict]} {report.verdict.upper()}", look) + f"  {report.cluster}  {when}"
    top = report.top
    if top is not None:
        where = ", ".join(str(s) for s in top.scopes) or "whole cluster"
        yield f"    {style(top.cause, look)} in layer {top.layer} at {where}, confidence {top.confidence:.2f}"
    if report.symptoms:
        yield "    symptoms: " + ", ".join(report.symptoms)


def _ttft(stages: tuple[TtftStage, ...], style: Style) -> Iterator[str]:
    if not stages:
        return
    yield style("TTFT, mean by stage", "title")
    for stage in stages:
        share = f" {stage.share:4.0%} " + "#" * round(stage.share * 30) if stage.share is not None else ""
        why = f"  ({stage.why})" if stage.seconds is None and stage.why else ""
        yield f"  {stage.stage:<16} {number(stage.seconds, 'seconds'):>9}{share}{why}"


def _hops(report: Report, style: Style) -> Iterator[str]:
    if report.hops:
        yield ""
        yield style("how it was found", "title")
        for index, hop in enumerate(report.hops, start=1):
            yield f"  {index}. {hop.question} {hop.answer}"


def _hypothesis(item: Hypothesis, style: Style) -> Iterator[str]:
    where = ", ".join(str(s) for s in item.scopes) or "whole cluster"
    yield (
        style(f"fault {item.fault}: {item.cause}", "title")
        + f"  {item.confidence:.2f}  {item.layer}  {where}  [{item.check}]"
    )
    for sign, evidence in (("+", item.for_), ("-", item.against)):
        for piece in evidence:
            yield f"  {sign} {_evidence(piece)}"
    for missing in item.missing:
        yield f"  ? {missing.signal}: {missing.why}"
    for index, step in enumerate(item.next):
        yield f"  {'next:  ' if index == 0 else '       '}{step}"
    if item.runbooks:
        yield f"  runbook: {', '.join(item.runbooks)}"
    for bad in item.do_not:
        yield f"  do not {style(bad.action, 'bad')}: {bad.why}"


def _evidence(piece: Evidence) -> str:
    where = f" {piece.scope}" if piece.scope else ""
    expected = f", expected {number(piece.expected, piece.unit)}" if piece.expected is not None else ""
    window = f", {piece.window_s:g} s" if piece.window_s else ""
    return f"{piece.signal}{where}: {number(piece.observed, piece.unit)}{expected} ({piece.basis}{window})"


def _more(count: int, limit: int | None) -> list[str]:
    return [f"  and {count - limit} more (--full lists them)"] if limit is not None and count > limit else []


def _wrap(line: str, width: int) -> list[str]:
    if len(line) <= width or "\x1b" in line:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [
        line
    ]
