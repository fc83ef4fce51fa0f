"""The same screen as plain text, for `--once`, for pipes and for tickets."""

from __future__ import annotations

from collections.abc import Sequence

from pdops.model.report import Report
from pdops.model.view import View
from pdops_tui.draw.compose import compose
from pdops_tui.draw.line import plain
from pdops_tui.models.compare import compare
from pdops_tui.models.screen import Screen, build
from pdops_tui.screens.compare import compared_lines
from pdops_tui.session import Session
from pdops_tui.snapshot import Position, Snapshot

LEAST_WIDTH = 40


def render_once(
    view: View,
    report: Report | None,
    width: int,
    height: int | None = None,
    ascii: bool = False,
    color: bool = False,
    *,
    source: str = "",
    position: Position | None = None,
    session: Session | None = None,
) -> str:
    """Return the screen as text, one newline at the end of each line.

    Args:
        view: what was seen.
        report: the judgement of it, or None when nobody judged it.
        width: columns; fewer than 40 are treated as 40.
        height: lines at most; None gives every row and the whole diagnosis.
        ascii: use ASCII characters only.
        color: add SGR colour sequences; without them nothing is lost.
        source: where the data comes from, for the header.
        position: where a replay stands.
        session: filter and order of the rows.
    """
    snapshot = Snapshot(seq=0, view=view, report=report, source=source, position=position)
    return render_screen(build(snapshot, session), width, height, ascii=ascii, color=color)


def render_screen(
    screen: Screen, width: int, height: int | None = None, *, ascii: bool = False, color: bool = False
) -> str:
    """Return a screen that was made already as text, as `render_once` does."""
    return plain(compose(screen, max(LEAST_WIDTH, width), height), ascii=ascii, color=color)


def render_beside(
    snapshots: Sequence[Snapshot],
    width: int,
    *,
    ascii: bool = False,
    color: bool = False,
    session: Session | None = None,
) -> str:
    """Return several sources beside each other as text, and what changed from the first to the last."""
    found = compare(snapshots, session)
    return plain(compared_lines(found, max(LEAST_WIDTH, width)), ascii=ascii, color=color)
