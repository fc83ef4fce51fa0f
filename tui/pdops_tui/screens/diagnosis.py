"""The diagnosis in full: trace, evidence over time, ruled out, missing, runbooks."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.catalog.load import catalog
from pdops.model.cluster import CLIENT, PAIR_PREFIX, POOL_PREFIX
from pdops.model.report import Bound, Evidence, Observed, Report, Scope
from pdops_tui.draw.line import Line, span
from pdops_tui.draw.panes import entry_lines
from pdops_tui.draw.plot import plot, spark
from pdops_tui.draw.sheet import Draft, Sheet
from pdops_tui.models import trend
from pdops_tui.models.diagnosis import trace
from pdops_tui.models.format import Form, measured
from pdops_tui.models.text import cells, clip_middle, pad
from pdops_tui.places import PAIR, POOL, WORKER, Place
from pdops_tui.screens.scene import Scene

BINS = 45
_MOST = 12
_PLOT_ROWS = 6
_ROOM = 40
"""From so many lines on the first piece of evidence is drawn large."""


def sheet(scene: Scene) -> Sheet:
    """Return everything that the report says, what it leads to, and its evidence over the last minutes."""
    report = scene.screen.snapshot.report
    out = Draft(scene.width)
    out.title("DIAGNOSIS", "enter opens what a line names")
    for entry in trace(report, scene.ask.view.notes):
        lines = entry_lines(entry, scene.width)
        if entry.place is None:
            out.extend(lines)
        else:
            out.spot(lines[0], entry.place, start=1)
            out.extend(lines[1:])
    if report is not None:
        _evidence(out, scene, report)
    return out.sheet()


def _evidence(out: Draft, scene: Scene, report: Report) -> None:
    pieces = list(_plotted(report))[:_MOST]
    if not pieces:
        return
    out.add(())
    out.title("EVIDENCE OVER TIME", trend.span_of(scene.ask))
    names = [f"{p.signal} {p.scope}" for p in pieces]
    wide = min(max(cells(n) for n in names), max(20, scene.width // 2 - 4))
    for index, (piece, name) in enumerate(zip(pieces, names, strict=True)):
        assert piece.scope is not None
        made = trend.of(scene.ask, _key(piece.scope), piece.signal, BINS)
        limit = _number(piece.expected)
        drawn = (
            spark(made, max(8, min(BINS, scene.width - wide - 24))) if made.known else span("? no history", "unknown")
        )
        expected = f" exp {measured(piece.expected, piece.unit)}" if piece.expected is not None else ""
        head: Line = (
            (f" {pad(clip_middle(name, wide), wide)} ", ""),
            *drawn,
            (f" {measured(piece.observed, piece.unit)}", "title"),
            (expected, "dim"),
        )
        place = Place(piece.scope.kind, piece.scope.id) if piece.scope.kind in (WORKER, POOL, PAIR) else None
        out.spot(head, place, start=1)
        if index == 0 and scene.height >= _ROOM and made.known:
            out.extend(plot(made, min(scene.width, 130), _PLOT_ROWS, _form(piece.unit), limit=limit))


def _plotted(report: Report) -> Iterator[Evidence]:
    """Yield the pieces of evidence that are signals of somebody, each once."""
    seen: set[tuple[str, Scope]] = set()
    for item in report.hypotheses:
        for piece in (*item.for_, *item.against):
            stem = piece.signal.partition(".")[0].partition("[")[0]
            if piece.scope is None or stem not in catalog().signals or (piece.signal, piece.scope) in seen:
                continue
            if piece.scope.kind in (WORKER, POOL, PAIR) or piece.scope.id == CLIENT:
                seen.add((piece.signal, piece.scope))
                yield piece


def _key(scope: Scope) -> str:
    return {POOL: POOL_PREFIX, PAIR: PAIR_PREFIX}.get(scope.kind, "") + scope.id


def _number(value: Observed) -> float | None:
    if isinstance(value, Bound):
        return value.value
    return float(value) if isinstance(value, int | float) else None


def _form(unit: str) -> Form:
    return lambda value: measured(value, unit).split(" ")[0]
