"""A Report as Markdown for an incident channel or ticket: short, and nothing from outside is taken as markup or a mention."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdops.diagnose.report_cells import evidence_rows, gathered, place, when
from pdops.diagnose.text_number import number
from pdops.model.report import Hypothesis, Report
from pdops.sources.redact import clean

_SPECIAL = re.compile(r"[\\`*\[\]|~]|(?<!\w)_|_(?!\w)|#(?=\w)|^[#+-](?=\s)")
_ENTITY = re.compile(r"&(?=#?\w+;)")
_MENTION = re.compile(r"@(?=\w)")
_EVIDENCE = 6
_SHORT = 8
"""Entries of a list of what was ruled out or is missing."""


def render(report: Report, *, full: bool = False) -> str:
    """Return the report as Markdown.

    With `full` everything is told, else the likeliest hypothesis of each fault and the first entries of long lists.
    """
    lines = [f"## {report.verdict.upper()}: {_text(report.cluster)}, {_text(when(report))}", ""]
    top = report.top
    if top is not None:
        lines += [
            f"**{_text(top.cause)}** in layer {_text(top.layer)} at **{_text(place(top.scopes))}**, "
            f"confidence {top.confidence:.2f}",
            "",
        ]
    if report.symptoms:
        lines += [f"Symptoms: {_text(', '.join(report.symptoms))}", ""]
    lines += _ttft(report)
    if report.hops:
        lines += ["### How it was found", ""]
        lines += [f"{n}. {_text(h.question)} {_text(h.answer)}" for n, h in enumerate(report.hops, start=1)]
        lines.append("")
    told: set[int] = set()
    others = []
    for item in report.hypotheses:
        if full or item.fault not in told:
            lines += _hypothesis(item, full)
        else:
            others.append(item)
        told.add(item.fault)
    weighed = [f"{_text(h.cause)}, {h.confidence:.2f}, {_text(h.layer)}, {_text(place(h.scopes))}" for h in others]
    lines += _short("Also weighed", weighed, full)
    lines += _short("Ruled out", [f"{_text(r.cause)}: {_text(r.because)}" for r in report.ruled_out], full)
    lacks = [(m, str(m.scope or "")) for m in report.missing] if full else gathered(report.missing)
    missing = [
        f"{_text(m.signal)}{f' ({_text(where)})' if where else ''}: {_text(m.why)}"
        + (f" → {_text(m.fix)}" if m.fix else "")
        for m, where in lacks
    ]
    lines += _short("Missing", missing, full)
    return "\n".join(lines).rstrip("\n") + "\n"


def _ttft(report: Report) -> Iterator[str]:
    known = [s for s in report.ttft if s.seconds is not None]
    if known:
        parts = (f"{s.stage} {number(s.seconds, 'seconds')}" + (f" ({s.share:.0%})" if s.share else "") for s in known)
        yield f"TTFT: {_text(', '.join(parts))}"
        yield ""


def _hypothesis(item: Hypothesis, full: bool) -> Iterator[str]:
    yield (
        f"### Fault {item.fault}: {_text(item.cause)}, {item.confidence:.2f}, {_text(item.layer)}, {_text(place(item.scopes))}"
    )
    yield ""
    rows = evidence_rows(item)
    shown = rows if full else rows[:_EVIDENCE]
    if shown:
        yield "| | signal | where | observed | expected | basis |"
        yield "|---|---|---|---|---|---|"
        for row in shown:
            yield f"| {' | '.join(('for' if row[0] == '+' else 'against', *map(_text, row[1:])))} |"
        yield ""
    if len(rows) > len(shown):
        yield f"and {len(rows) - len(shown)} more pieces of evidence"
        yield ""
    for missing, where in gathered(item.missing):
        several = f" ({_text(where)})" if missing.scope is None and where else ""
        yield f"- not known: {_text(missing.signal)}{several}: {_text(missing.why)}"
    yield from (f"- **next**: {_text(step)}" for step in item.next)
    if item.runbooks:
        yield f"- runbook: {_text(', '.join(item.runbooks))}"
    yield from (f"- **do not** {_text(bad.action)}: {_text(bad.why)}" for bad in item.do_not)
    yield ""


def _short(title: str, items: list[str], full: bool) -> Iterator[str]:
    if not items:
        return
    shown = items if full else items[:_SHORT]
    yield f"### {title}"
    yield ""
    yield from (f"- {item}" for item in shown)
    if len(items) > len(shown):
        yield f"- and {len(items) - len(shown)} more"
    yield ""


def _text(text: str) -> str:
    """Return text from outside so that no Markdown dialect sees markup, a link or a mention in it."""
    plain = " ".join(clean(text).split())
    plain = _ENTITY.sub("&amp;", plain).replace("<", "&lt;").replace(">", "&gt;")
    escaped = _SPECIAL.sub(lambda found: "\\" + found[0], plain)
    # A bare address would become a link, and a name behind an at sign would page somebody.
    return _MENTION.sub("@\u2060", escaped).replace("://", ":\u2060//")
