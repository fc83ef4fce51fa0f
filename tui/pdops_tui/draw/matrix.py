"""Draw the P×D matrix: large on a screen of its own, small on the main screen."""

from __future__ import annotations

from pdops_tui.draw.line import Line, Span, span, wrap
from pdops_tui.draw.plot import LEVELS
from pdops_tui.draw.sheet import Draft, Target
from pdops_tui.models.format import Cell
from pdops_tui.models.matrix import MOST, Matrix
from pdops_tui.models.pairs import VALUES
from pdops_tui.models.text import cells, clean, clip, clip_middle, pad
from pdops_tui.places import PAIR, Place

_CELL = 10
_BARS = 4


def matrix_rows(made: Matrix, width: int, *, edges: bool, bars: bool = False) -> tuple[list[Line], list[Target]]:
    """Return head and rows, with a spot for each cell; columns that do not fit are counted in the head.

    Args:
        made: the matrix.
        width: cells of a line.
        edges: add what workers say of all their pairs together.
        bars: draw a bar behind a number where there is room.
    """
    names = min(max([cells(n) for n in (*made.rows, "all senders")], default=0), max(8, width // 4))
    room = width - names - 3 - (_CELL + 2 if edges else 0)
    head = max([min(cells(n), 12) for n in made.columns], default=0)
    wide = max(_CELL, head + 1)
    bar = _BARS if bars and room >= (wide + _BARS + 1) * len(made.columns) else 0
    shown = min(len(made.columns), max(1, room // (wide + bar)))
    wide += bar
    more = len(made.columns) - shown
    most = max([share for row in made.shares for share in row if share is not None], default=1.0)
    out: list[Line] = []
    spots: list[Target] = []
    top: list[Span] = [(" " * (names + 2), "")]
    top += [
        (pad(clip_middle(n, wide - bar - 2), wide - bar - 2, right=True) + " " * bar + "  ", "dim")
        for n in made.columns[:shown]
    ]
    if edges:
        top.append((" │ all", "dim"))
    if more:
        top.append((f" +{more}", "dim"))
    out.append(tuple(top))
    for i, name in enumerate(made.rows):
        line: list[Span] = [(f" {pad(clip_middle(name, names), names)} ", "dim")]
        start = names + 2
        for j in range(shown):
            spots.append(Target(len(out), start, wide, Place(PAIR, made.opens[i][j])))
            line += _cell(made.cells[i][j], made.shares[i][j], wide, bar, most)
            start += wide
        if edges:
            line += [(" │ ", "dim"), *_cell(made.sent[i], None, _CELL, 0)]
        out.append(tuple(line))
    if edges:
        foot: list[Span] = [(f" {pad(clip('all senders', names), names)} ", "dim")]
        for j in range(shown):
            foot += _cell(made.received[j], None, wide, bar)
        out.append(tuple(foot))
    return out, spots


def _cell(cell: Cell, share: float | None, wide: int, bar: int, most: float = 1.0) -> list[Span]:
    mark = f" {cell.mark}" if cell.mark else "  "
    room = wide - bar - 2
    drawn: list[Span] = [(pad(clip(cell.text, room), room, right=True) + mark, cell.style)]
    if bar:
        level = "" if share is None else LEVELS[min(7, max(0, round(share / most * 7)))] * (bar - 1)
        drawn.append((" " + pad(level, bar - 1), cell.style or "key"))
    return drawn


def matrix_pane(made: Matrix, width: int, rows: int) -> list[Line]:
    """Return the matrix in at most `rows` lines for the main screen: the table, or the worst pairs of a large one."""
    if rows <= 0:
        return []
    if not made.told and not made.idle:
        text = "? pairs are not known: engines name no peer, and no router or plugin tells of pairs"
        return [span(f" {line}", "unknown") for line in wrap(text, max(20, width - 2))][:rows]
    if len(made.rows) + 1 <= rows and not made.grouped:
        lines, _ = matrix_rows(made, width, edges=False)
        return lines[:rows]
    if made.idle:
        return [span(f" no transfer in the window in any of {made.pairs} pairs", "dim")]
    out: list[Line] = [span(f" {made.told} of {made.pairs} pairs known; the worst:", "dim")]
    for name, cell, share in made.worst[: rows - 1]:
        beside = f"  {share:.2g} of the median" if share is not None else ""
        shown = pad(clip_middle(clean(name), width // 2), width // 2)
        out.append(((f" {shown} ", ""), (f"{cell.text} {cell.mark}", cell.style), (beside, "dim")))
    return out


def matrix_title(made: Matrix, *, relative: bool = False) -> str:
    """Return what the matrix shows."""
    parts = [f"KV TRANSFER P x D · {made.value}: {VALUES[made.value].title}"]
    if relative:
        parts.append("beside the median")
    if made.grouped:
        parts.append(f"more than {MOST}x{MOST}, grouped by {made.grouped}: {VALUES[made.value].join_word}")
    return " · ".join(parts)


def add_matrix(out: Draft, made: Matrix, *, relative: bool) -> None:
    """Add the whole matrix to a sheet."""
    out.title(matrix_title(made, relative=relative))
    lines, spots = matrix_rows(made, out.width, edges=True, bars=True)
    base = len(out.lines)
    out.extend(lines)
    out.targets.extend(Target(s.line + base, s.start, s.width, s.place) for s in spots)
