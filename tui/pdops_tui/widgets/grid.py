"""The grid of a pool table: title, head and pool rows stay, workers scroll between them."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from pdops_tui.draw.line import Line
from pdops_tui.draw.table import NAME, STATE, Grid, frame, grid, head_line, place_at, row_line, title_line
from pdops_tui.models.pools import Row, Table
from pdops_tui.widgets.keys import CURSOR_KEYS
from pdops_tui.widgets.paint import strip

_PINNED_MOST = 3
_MARGIN = 8
"""Rows made ready beyond those in sight, so that a turn of the wheel finds them."""


class GridView(ScrollView, can_focus=True):
    """Draws one Table with a cursor that stays on its worker when rows move."""

    BINDINGS: ClassVar[list[BindingType]] = [*CURSOR_KEYS]

    class Moved(Message):
        """The cursor went somewhere else."""

    class Sorted(Message):
        """The head of the column under the cursor was clicked."""

    class Opened(Message):
        """A row was clicked twice."""

    def __init__(self, *, id: str, ascii: bool) -> None:
        super().__init__(id=id)
        self._ascii = ascii
        self._table: Table | None = None
        self._grid: Grid | None = None
        self._lines: list[Line] = []
        self._row = 0
        self._row_id: str | None = None
        self._place = STATE

    # what others ask

    @property
    def table(self) -> Table | None:
        """The table that is drawn."""
        return self._table

    @property
    def selected(self) -> tuple[Row, int] | None:
        """The row under the cursor, and the place in it."""
        if self._table is None or not len(self._table):
            return None
        return self._table.row(self._row), self._place

    @property
    def selected_key(self) -> str:
        """The key of the column under the cursor, as an Order takes it."""
        if self._table is None or self._place == NAME:
            return "worker"
        return "state" if self._place == STATE else self._table.columns[self._place].key

    @property
    def lines(self) -> list[Line]:
        """What is in sight, line by line."""
        return self._lines

    def in_sight(self) -> tuple[int, int]:
        """Return the rows worth making ready: first, and the one after the last."""
        top = max(0, round(self.scroll_y) - _MARGIN)
        return top, top + self.size.height + 2 * _MARGIN

    # what changes it

    def show(self, table: Table | None) -> None:
        """Draw this table from now on; the cursor follows its worker."""
        self._table = table
        if table is not None and len(table):
            self._row = self._find(table)
            self._row_id = table.row(self._row).id
            self.virtual_size = Size(self.size.width, self._head + self._scrolling(table) + self._pinned(table))
        self._lay_out()

    @property
    def _head(self) -> int:
        """Lines above the rows."""
        return sum(frame(self.size.height))

    def _find(self, table: Table) -> int:
        if self._row_id in table.ids:
            return table.ids.index(self._row_id)
        if self._row_id is not None and self._row_id.startswith("pool:"):
            pool = self._row_id.removeprefix("pool:")
            if pool in table.pools:
                return len(table.ids) + table.pools.index(pool)
        return min(self._row, len(table) - 1)

    def _pinned(self, table: Table) -> int:
        fits = len(table.pools) <= min(_PINNED_MOST, self.size.height - self._head - 1)
        return len(table.pools) if fits else 0

    def _scrolling(self, table: Table) -> int:
        return len(table) - self._pinned(table)

    def _lay_out(self) -> None:
        """Make the lines in sight, and draw those that changed."""
        old, self._lines = self._lines, self._made()
        for y in range(max(len(old), len(self._lines))):
            if y >= len(old) or y >= len(self._lines) or old[y] != self._lines[y]:
                self.refresh(Region(0, y, self.size.width, 1))

    def _made(self) -> list[Line]:
        table, width, height = self._table, self.size.width, self.size.height
        if table is None or width <= 0 or height <= 0:
            return []
        self._grid = layout = grid(table, width)
        if self._place not in layout.places:
            self._place = STATE
        pinned, scrolling = self._pinned(table), self._scrolling(table)
        room = max(0, height - self._head - pinned)
        top = min(max(0, round(self.scroll_y)), max(0, scrolling - room))
        last = min(top + room, scrolling)
        seen = f"{top + 1}-{last}" if last > top else "0"
        hint = f"{seen} of {scrolling}" if scrolling > room else ""
        shown = [*range(top, last), *range(scrolling, scrolling + pinned)]
        titled, headed = frame(height)
        lines = [title_line(table, width, focused=self.has_focus, hint=hint)] if titled else []
        lines += [head_line(table, layout)] if headed else []
        for index in shown:
            here = self.has_focus and index == self._row
            lines.append(row_line(table, table.row(index), layout, cursor=self._place, here=here))
        return lines[:height]

    def _move_to(self, row: int, place: int | None = None) -> None:
        table = self._table
        if table is None or not len(table):
            return
        self._row = min(max(0, row), len(table) - 1)
        self._row_id = table.row(self._row).id
        if place is not None:
            self._place = place
        room = max(1, self.size.height - self._head - self._pinned(table))
        if self._row < self._scrolling(table):
            top = round(self.scroll_y)
            wanted = self._row if self._row < top else self._row - room + 1 if self._row >= top + room else top
            if wanted != top:
                self.scroll_to(y=wanted, animate=False, force=True, immediate=True)
        self._lay_out()
        self.post_message(self.Moved())

    def action_move(self, down: int, right: int) -> None:
        """Move the cursor by rows and columns."""
        place = None
        if right and self._grid is not None:
            places = self._grid.places
            at = places.index(self._place) if self._place in places else 0
            place = places[min(max(0, at + right), len(places) - 1)]
        self._move_to(self._row + down, place)

    def action_page(self, pages: int) -> None:
        """Move the cursor by what is in sight."""
        self._move_to(self._row + pages * max(1, self.size.height - self._head - 1))

    def action_edge(self, end: int) -> None:
        """Move the cursor to the first or the last row."""
        self._move_to(len(self._table) if self._table is not None and end > 0 else 0)

    # what Textual tells

    def on_click(self, event: Click) -> None:
        """Put the cursor on what was clicked; a click on the head sorts, a double click opens."""
        titled, headed = frame(self.size.height)
        if self._table is None or self._grid is None or (titled and event.y == 0):
            return
        place = place_at(self._table, self._grid, event.x)
        if headed and event.y < self._head:
            self._move_to(self._row, place)
            self.post_message(self.Sorted())
            return
        scrolling, pinned = self._scrolling(self._table), self._pinned(self._table)
        from_end = event.y - (len(self._lines) - pinned)
        row = scrolling + from_end if from_end >= 0 else event.y - self._head + round(self.scroll_y)
        self._move_to(row, place)
        if event.chain == 2:
            self.post_message(self.Opened())

    def watch_has_focus(self, value: bool) -> None:
        """Show or hide the cursor."""
        super().watch_has_focus(value)
        self._lay_out()

    def on_resize(self) -> None:
        """Choose columns and rows for the new size."""
        self.show(self._table)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Make the rows that came into sight."""
        super().watch_scroll_y(old_value, new_value)
        self._lay_out()

    def render_line(self, y: int) -> Strip:
        """Return one line of what is in sight."""
        line = self._lines[y] if y < len(self._lines) else ()
        return strip(line, self.size.width, ascii=self._ascii)
