"""A Report for people, as plain text of a given width; styles are left to the caller."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator

from pdops.diagnose.report_cells import evidence_rows, gathered, place, table, when
from pdops.diagnose.text_number import number
from pdops.model.report import Hypothesis, Report, TtftStage, Verdict

__all__ = ["number", "plain", "render"]

Style = Callable[[str, str], str]
"""Takes a text and one of `title good bad warn dim` and returns it dressed."""

_MARK = {Verdict.FAULT: "[X]", Verdict.OVERLOAD: "[!]", Verdict.UNKNOWN: "[?]", Verdict.HEALTHY: "ok "}
_LOOK = {Verdict.FAULT: "bad", Verdict.OVERLOAD: "warn", Verdict.UNKNOWN: "warn", Verdict.HEALTHY: "good"}
_CONTROL = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x09\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What names from outside could do to a terminal; colours, which styles use, are let through."""


def plain(text: str, _look: str) -> str:
    """Return text undressed."""
    return text


def render(report: Report, *, width: int = 100, style: Style = plain, full: bool = False) -> str:
    """Return the report as text. With `full` everything ruled out and missing is listed, else the first few."""
    lines = [*_head(report, style), "", *_ttft(report.ttft, style), *_hops(report, style)]
    for hypothesis in report.hypotheses:
        lines += ["", *_hypothesis(hypothesis, style, width)]
    limit = None if full else 4
    if report.ruled_out:
        lines += ["", style("ruled out", "title")]
        lines += [f"  {r.cause}: {r.because}" for r in report.ruled_out[:limit]]
        lines += _more(len(report.ruled_out), limit)
    if report.missing:
        lines += ["", style("missing", "title")]
        lacks = [(m, str(m.scope or "")) for m in report.missing] if full else list(gathered(report.missing))
        for item, lacking in lacks[:limit]:
            where = f" ({lacking})" if lacking else ""
            fix = f" -> {item.fix}" if item.fix else ""
            lines.append(f"  {item.signal}{where}: {item.why}{fix}")
        lines += _more(len(lacks), limit)
    text = "\n".join(part for line in lines for part in _wrap(line, width)) + "\n"
    return _CONTROL.sub("", text)


def _head(report: Report, style: Style) -> Iterator[str]:
    look = _LOOK[report.verdict]
    yield style(f"{_MARK[report.verdict]} {report.verdict.upper()}", look) + f"  {report.cluster}  {when(report)}"
    top = report.top
    if top is not None:
        yield f"    {style(top.cause, look)} in layer {top.layer} at {place(top.scopes)}, confidence {top.confidence:.2f}"
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


def _hypothesis(item: Hypothesis, style: Style, width: int) -> Iterator[str]:
    yield (
        style(f"fault {item.fault}: {item.cause}", "title")
        + f"  {item.confidence:.2f}  {item.layer}  {place(item.scopes)}  [{item.check}]"
    )
    rows = evidence_rows(item)
    if rows:
        head, *lines = table(rows, width)
        yield style(head, "dim")
        yield from lines
    for missing, where in gathered(item.missing):
        several = f" ({where})" if missing.scope is None and where else ""
        yield f"  ? {missing.signal}{several}: {missing.why}"
    for index, step in enumerate(item.next):
        yield f"  {'next:  ' if index == 0 else '       '}{step}"
    if item.runbooks:
        yield f"  runbook: {', '.join(item.runbooks)}"
    for bad in item.do_not:
        yield f"  do not {style(bad.action, 'bad')}: {bad.why}"


def _more(count: int, limit: int | None) -> list[str]:
    return [f"  and {count - limit} more (--full lists them)"] if limit is not None and count > limit else []


def _wrap(line: str, width: int) -> list[str]:
    if len(line) <= width or "\x1b" in line:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [
        line
    ]
