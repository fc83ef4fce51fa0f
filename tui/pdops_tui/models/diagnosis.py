"""The diagnosis pane in short, and the full trace behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pdops.diagnose.report_cells import gathered
from pdops.model.report import Evidence, Hypothesis, Missing, Report, Scope, Verdict
from pdops.model.view import Note
from pdops_tui.models.format import VERDICT_MARK, VERDICT_STYLE, Style, measured
from pdops_tui.models.text import clean
from pdops_tui.places import PAIR, POOL, RUNBOOK, WORKER, Place

_TOLD = ("logs", "facts")
"""Notes of these kinds are among what is missing already."""

_SIGNALS = 8
"""How many missing signals of a hypothesis are named in short."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: a label, a text, how to style the label. `drop` greater leaves a small pane first; `indent` in cells.

    `place` is what the line leads to.
    """

    label: str
    text: str
    style: Style = ""
    drop: int = 0
    indent: int = 0
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The pane: its title and its lines in order."""

    title: str
    entries: tuple[Entry, ...]


def brief(report: Report | None) -> Diagnosis:
    """Return verdict, hypotheses, the strongest evidence, what to do and what not to do."""
    if report is None:
        return Diagnosis("DIAGNOSIS", (Entry("[?]", "not judged yet", "unknown"),))
    entries: list[Entry] = []
    for index, item in enumerate(report.hypotheses):
        entries += _short(report, index, item)
    if not report.hypotheses:
        if report.verdict is Verdict.HEALTHY:
            entries.append(Entry("ok", "no fault found", "good"))
        else:
            entries.append(Entry(VERDICT_MARK[report.verdict], "no hypothesis fits", VERDICT_STYLE[report.verdict]))
        entries += [Entry("why", clean(f"{h.question} {h.answer}"), "dim", 4, 1) for h in report.hops]
    for gap, where in gathered(report.missing)[:3]:
        entries.append(Entry("?", _missing(gap, where), "unknown", 3 if not report.hypotheses else 6, 1))
    title = ["DIAGNOSIS"]
    if report.symptoms:
        title.append(", ".join(report.symptoms))
    if report.missing:
        title.append(f"{len(report.missing)} missing")
    return Diagnosis(" · ".join(title), tuple(entries))


def _short(report: Report, index: int, item: Hypothesis) -> Iterator[Entry]:
    base = index * 10
    sure = report.verdict in (Verdict.FAULT, Verdict.OVERLOAD) and index == 0
    mark = VERDICT_MARK[report.verdict] if sure else "[?]" if report.verdict is Verdict.UNKNOWN else "[!]"
    style: Style = VERDICT_STYLE[report.verdict] if sure else "unknown" if mark == "[?]" else "warn"
    yield Entry(
        f"{index + 1} {mark} {item.confidence:.2f}", clean(f"{item.cause}  {item.layer}  {_where(item)}"), style, base
    )
    for rank, piece in enumerate(item.for_[:4]):
        yield Entry("+", _evidence(piece), "", base + 2 + 2 * rank, 1)
    for rank, piece in enumerate(item.against[:2]):
        yield Entry("-", _evidence(piece), "", base + 7 + rank, 1)
    for rank, step in enumerate(item.next[:3]):
        yield Entry("next", clean(step), "key", base + 1 + 3 * rank, 1)
    for rank, bad in enumerate(item.do_not[:2]):
        yield Entry("do not", clean(f"{bad.action}: {bad.why}"), "warn", base + 3 + 5 * rank, 1)
    if item.runbooks:
        yield Entry("runbook", clean(", ".join(item.runbooks)), "key", base + 3, 1)
    if item.missing:
        counts = Counter(m.signal for m in item.missing)
        names = ", ".join(f"{n} x {signal}" if n > 1 else signal for signal, n in counts.most_common(_SIGNALS))
        more = len(counts) - _SIGNALS
        names += f" and {more} other signal{'s' * (more > 1)}" if more > 0 else ""
        yield Entry("?", clean(f"{len(item.missing)} missing: {names}"), "unknown", base + 5, 1)


def trace(report: Report | None, notes: tuple[Note, ...] = ()) -> tuple[Entry, ...]:
    """Return everything the report says, in the order of thought."""
    if report is None:
        return (Entry("[?]", "not judged yet", "unknown"),)
    lines = [
        Entry(
            f"{VERDICT_MARK[report.verdict]} {report.verdict.upper()}",
            clean(f"{report.cluster}  {report.at or f't={report.at_s:g} s'}"),
            VERDICT_STYLE[report.verdict],
        )
    ]
    if report.symptoms:
        lines.append(Entry("symptoms", clean(", ".join(report.symptoms)), "title"))
    lines += _section("how it was found")
    lines += [Entry(f"{n}.", clean(f"{h.question} {h.answer}"), "", 0, 2) for n, h in enumerate(report.hops, 1)]
    for item in report.hypotheses:
        lines += _full(item)
    if report.ruled_out:
        lines += _section("ruled out")
        for out in report.ruled_out:
            where = f" ({out.scope})" if out.scope else ""
            lines.append(Entry("x", clean(f"{out.cause}{where}: {out.because}"), "dim", 0, 2))
    if report.missing:
        lines += _section("missing")
        lines += [Entry("?", _missing(m, str(m.scope or "")), "unknown", 0, 2) for m in report.missing]
    notes = tuple(note for note in notes if note.code.partition("/")[0] not in _TOLD)
    if notes:
        lines += _section("notes on the data")
        for note in notes:
            fix = f" -> {note.fix}" if note.fix else ""
            lines.append(Entry("!", clean(f"{note.worker}: {note.why}{fix}"), "warn", 0, 2))
    return tuple(lines)


def _full(item: Hypothesis) -> Iterator[Entry]:
    yield from _section(f"fault {item.fault}: {item.cause}")
    yield Entry(f"{item.confidence:.2f}", clean(f"{item.layer}  {_where(item)}  [{item.check}]"), "title", 0, 2)
    for piece in item.for_:
        yield Entry("+", _evidence(piece), "good", 0, 2, _place(piece.scope))
    for piece in item.against:
        yield Entry("-", _evidence(piece), "bad", 0, 2, _place(piece.scope))
    for missing in item.missing:
        yield Entry("?", _missing(missing, str(missing.scope or "")), "unknown", 0, 2)
    for step in item.next:
        yield Entry("next", clean(step), "key", 0, 2)
    for runbook in item.runbooks:
        yield Entry("runbook", clean(f"{runbook}: enter shows its plan"), "key", 0, 2, Place(RUNBOOK, runbook))
    for bad in item.do_not:
        yield Entry("do not", clean(f"{bad.action}: {bad.why}"), "warn", 0, 2)


def _place(scope: Scope | None) -> Place | None:
    if scope is None or scope.kind not in (WORKER, POOL, PAIR):
        return None
    return Place(scope.kind, scope.id)


def _section(title: str) -> tuple[Entry, ...]:
    return (Entry("", ""), Entry(clean(title), "", "title"))


def _where(item: Hypothesis) -> str:
    return clean(", ".join(str(s) for s in item.scopes) or "whole cluster")


def _missing(item: Missing, where: str) -> str:
    where = f" ({where})" if where else ""
    fix = f" -> {item.fix}" if item.fix else ""
    return clean(f"{item.signal}{where}: {item.why}{fix}")


def _evidence(piece: Evidence) -> str:
    where = f" {piece.scope}" if piece.scope else ""
    expected = f", expected {measured(piece.expected, piece.unit)}" if piece.expected is not None else ""
    window = f", {piece.window_s:g} s" if piece.window_s else ""
    return clean(f"{piece.signal}{where}: {measured(piece.observed, piece.unit)}{expected} ({piece.basis}{window})")
