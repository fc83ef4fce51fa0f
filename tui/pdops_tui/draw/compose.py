"""Put the whole screen together as lines, for text output; the widgets draw the same parts."""

from __future__ import annotations

from itertools import zip_longest

from pdops_tui.draw.header import header_lines
from pdops_tui.draw.line import Line, fill, rule
from pdops_tui.draw.matrix import matrix_pane, matrix_title
from pdops_tui.draw.panes import diagnosis_lines, event_lines, other_lines, trend_lines
from pdops_tui.draw.plan import EVERYTHING, PLOT, Plan, plan
from pdops_tui.draw.plot import plot
from pdops_tui.draw.table import frame, grid, head_line, row_line, title_line
from pdops_tui.models.pools import Table
from pdops_tui.models.screen import Screen
from pdops_tui.models.trend import span_of


def compose(screen: Screen, width: int, height: int | None) -> list[Line]:
    """Return the screen in `width` columns and at most `height` lines, or as many as it needs."""
    layout = plan(screen, width, height, footer=0)
    lines = header_lines(screen, width, layout.header)
    body = _tables(screen, layout) + other_lines(screen.others[: layout.others], layout.main)
    body += matrix_block(screen, layout.main, layout.matrix) + trend_block(screen, layout.main, layout.trends)
    side = _side(screen, layout)
    if layout.side:
        pairs = zip_longest(body, side, fillvalue=())
        body = [(*fill(left, layout.main), ("│", "dim"), *right) for left, right in pairs]
    else:
        body += side
    lines += body
    return lines if height is None else lines[:height]


def _tables(screen: Screen, layout: Plan) -> list[Line]:
    lines: list[Line] = []
    for table, rows in zip(screen.tables, layout.tables, strict=True):
        lines += table_lines(table, layout.main, rows)
    if not screen.tables:
        lines.append(rule("no prefill or decode worker is known", layout.main))
    return lines


def table_lines(table: Table, width: int, rows: int) -> list[Line]:
    """Return a table in at most `rows` lines; what does not fit is counted, and the pool rows stay."""
    if rows <= 0:
        return []
    titled, headed = frame(rows)
    room = max(0, rows - titled - headed)
    places = grid(table, width)
    pools = min(len(table.pools), max(0, room - 1))
    shown = min(len(table.ids), room - pools)
    left = len(table.ids) - shown
    hint = f"{left} more not shown" if left else ""
    lines = [title_line(table, width, hint=hint)] if titled else []
    lines += [head_line(table, places)] if headed else []
    lines += [row_line(table, row, places) for row in table.rows(0, shown)]
    start = len(table.ids)
    lines += [row_line(table, row, places) for row in table.rows(start, start + pools)]
    return lines[:rows]


def matrix_block(screen: Screen, width: int, rows: int) -> list[Line]:
    """Return the matrix with its title in at most `rows` lines."""
    if rows <= 0:
        return []
    title = rule(matrix_title(screen.matrix, relative=screen.relative), width, "m: all of it")
    return [title, *matrix_pane(screen.matrix, width, rows - 1)]


def trend_block(screen: Screen, width: int, rows: int) -> list[Line]:
    """Return the trends with their title in at most `rows` lines: one a signal, or drawn large as far as there is room."""
    if rows <= 0:
        return []
    lines: list[Line] = [rule(f"TRENDS, {span_of(screen.ask)}", width)]
    spare = rows - 1 - len(screen.trends)
    for line, text in zip(screen.trends, trend_lines(screen.trends, width), strict=True):
        lines.append(text)
        if spare >= PLOT and line.over.known:
            lines += plot(line.over, width, PLOT, line.form, limit=line.limit)
            spare -= PLOT
    return lines[:rows]


def _side(screen: Screen, layout: Plan) -> list[Line]:
    width = layout.side or layout.width
    lines: list[Line] = []
    if layout.diagnosis > 0:
        whole = layout.diagnosis >= EVERYTHING
        rows = None if whole else layout.diagnosis - 1
        lines.append(rule(screen.diagnosis.title, width))
        body = diagnosis_lines(screen.diagnosis, width, rows)
        lines += body
        if rows is not None and layout.side:
            lines += [()] * (rows - len(body))
    if layout.events > 0:
        lines.append(rule("EVENTS", width))
        lines += event_lines(screen.events, width, layout.events - 1)
    return lines
