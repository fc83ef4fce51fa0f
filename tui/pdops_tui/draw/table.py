"""Draw pool tables: which columns fit, the head line, and each row in exactly the same places."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdops_tui.draw.line import Line, Span, fill, rule
from pdops_tui.models.format import Cell, Style
from pdops_tui.models.pools import Row, Table
from pdops_tui.models.text import cells, clip, clip_middle, pad

_NAME_LEAST, _NAME_NARROW = 8, 10
_NAME_MOST = 40
_STATE_SHORT = 5
_STATE_LONG = 10
NAME, STATE = -2, -1
"""Places of the two fixed columns; the others are indexes into the table's columns."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Where the columns of a table stand: indexes of those that are shown, and widths in cells."""

    width: int
    name: int
    state: int
    mark: int
    gap: int
    shown: tuple[int, ...]

    @property
    def places(self) -> tuple[int, ...]:
        """All places a cursor can stand on, left to right."""
        return (NAME, STATE, *self.shown)


def grid(table: Table, width: int) -> Grid:
    """Choose the columns that fit; what is left widens the gaps."""
    most = _NAME_MOST if width >= 110 else max(_NAME_NARROW, width // 5)
    name = min(max(table.name_width, _NAME_LEAST), most)
    state = _STATE_LONG if table.away else _STATE_SHORT
    room = width - 1 - name - 1 - state
    shown: list[int] = []
    for index in sorted(range(len(table.columns)), key=lambda i: (table.columns[i].drop, i)):
        need = table.columns[index].width + 2
        if need <= room:
            shown.append(index)
            room -= need
    mark = 2 if room >= len(shown) else 1
    room -= (mark - 1) * len(shown)
    gap = 1 + min(2, room // max(1, len(shown) + 1))
    return Grid(width, name, state, mark, gap, tuple(sorted(shown)))


def frame(height: int) -> tuple[bool, bool]:
    """Return whether there is room for a title and for column heads: rows come first, then what they belong to."""
    return height >= 2, height >= 4


def place_at(table: Table, layout: Grid, x: int) -> int:
    """Return the place that a cell of a row or the head belongs to, the last one beyond them."""
    end = 1 + layout.name
    if x < end:
        return NAME
    end += 1 + layout.state
    if x < end or not layout.shown:
        return STATE
    for index in layout.shown:
        end += layout.gap + table.columns[index].width + layout.mark
        if x < end:
            return index
    return layout.shown[-1]


def title_line(table: Table, width: int, *, focused: bool = False, hint: str = "") -> Line:
    """Return the rule with the table's title."""
    return rule(table.title, width, hint, focused=focused)


def head_line(table: Table, layout: Grid) -> Line:
    """Return the column titles; the one that sorts carries an arrow."""
    arrow = "▼" if table.order.descending else "▲"

    def titled(title: str, key: str) -> str:
        return f"{title}{arrow}" if table.order.key == key else title

    gap = " " * layout.gap
    out: list[Span] = [
        (" " + pad(clip(titled("WORKER", "worker"), layout.name), layout.name), "dim"),
        (" " + pad(clip(titled("STATE", "state"), layout.state), layout.state), "dim"),
    ]
    for index in layout.shown:
        column = table.columns[index]
        # The arrow stands in the mark's place, so that a title does not move when its column sorts.
        mark = arrow if table.order.key == column.key else ""
        out.append((gap + pad(column.title, column.width, right=True) + pad(mark, layout.mark), "dim"))
    return fill(tuple(out), layout.width)


def row_line(table: Table, row: Row, layout: Grid, *, cursor: int | None = None, here: bool = False) -> Line:
    """Return one row.

    Args:
        table: the row's table.
        row: what to draw.
        layout: where the columns stand.
        cursor: the place the cursor is on, or None when the cursor is elsewhere.
        here: the cursor is on this row.
    """
    base: Style = "dim" if row.dim else "title" if row.is_pool else ""
    lead = ">" if here else " "
    out: list[Span] = [
        (lead, base),
        (pad(clip_middle(row.name, layout.name), layout.name), _style(base, "", cursor == NAME and here)),
        (" ", ""),
        (
            pad(clip(_state_text(row.state, layout.state), layout.state), layout.state),
            _style(row.state.style or base, "", cursor == STATE and here),
        ),
    ]
    gap = " " * layout.gap
    for index in layout.shown:
        out.append((gap, ""))
        cell = row.cells[index]
        own: Style = "dim" if row.dim else cell.style
        out.append(
            (_cell_text(cell, table.columns[index].width, layout.mark), _style(base, own, cursor == index and here))
        )
    return fill(tuple(out), layout.width)


def _style(base: Style, own: Style, selected: bool) -> Style:
    return "cursor" if selected else own or base


def _state_text(state: Cell, width: int) -> str:
    return state.text if cells(state.text) <= width else state.text.split(" ", 1)[0]


def _cell_text(cell: Cell, width: int, mark: int) -> str:
    """Return the value at the right edge and its mark behind it; a value that needs the mark's place takes it.

    A mark keeps a blank before it where there is one to spare: `30 X` does not read like a factor. Of a number that does not
    fit nothing is shown: what is left of it would read as another one.
    """
    if cell.sort is not None and cells(cell.text) > width + (0 if cell.mark else mark):
        cell = replace(cell, text="…")
    if cell.mark:
        if mark > 1 or cells(cell.text) >= width:
            return pad(clip(cell.text, width), width, right=True) + pad(cell.mark, mark, right=True)
        return pad(f"{cell.text} {cell.mark}", width + 1, right=True)
    if cells(cell.text) <= width:
        return pad(cell.text, width, right=True) + " " * mark
    return pad(clip(cell.text, width + mark), width + mark)


def cell_at(row: Row, place: int) -> Cell:
    """Return the cell at a place of a row."""
    if place == NAME:
        return Cell(row.name, why=row.name)
    return row.state if place == STATE else row.cells[place]
