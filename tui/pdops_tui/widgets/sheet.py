"""Draws a sheet line by line, with a cursor that goes from spot to spot and stays on what it stands on."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from pdops_tui.draw.sheet import Sheet, Target
from pdops_tui.widgets.keys import CURSOR_KEYS
from pdops_tui.widgets.paint import CURSOR, strip


class SheetView(ScrollView, can_focus=True):
    """A sheet that scrolls."""

    BINDINGS: ClassVar[list[BindingType]] = [*CURSOR_KEYS]

    class Opened(Message):
        """A spot was clicked a second time, or twice."""

    class Resized(Message):
        """There is another room now, the first one included."""

    def __init__(self, *, ascii: bool) -> None:
        super().__init__()
        self._ascii = ascii
        self._sheet = Sheet()
        self._at = 0

    @property
    def sheet(self) -> Sheet:
        """What is drawn."""
        return self._sheet

    @property
    def here(self) -> Target | None:
        """The spot under the cursor, or None when there is no spot."""
        targets = self._sheet.targets
        return targets[self._at] if self._at < len(targets) else None

    def show(self, sheet: Sheet) -> None:
        """Draw this sheet from now on; the cursor follows its spot."""
        if sheet == self._sheet:
            return
        before = self.here
        self._sheet = sheet
        if before is not None:
            same = [i for i, t in enumerate(sheet.targets) if t.key == before.key]
            self._at = same[0] if same else min(self._at, max(0, len(sheet.targets) - 1))
        self.virtual_size = Size(self.size.width, len(sheet.lines))
        self.refresh()

    def stand_on(self, at: int) -> None:
        """Put the cursor on a spot, and bring it into sight."""
        targets = self._sheet.targets
        if not targets:
            return
        self._at = min(max(0, at), len(targets) - 1)
        line, top, room = targets[self._at].line, round(self.scroll_y), self._room
        if not top <= line < top + room:
            self._scroll(line if line < top else line - room + 1)
        self.refresh()

    @property
    def _room(self) -> int:
        return max(1, self.size.height)

    def _scroll(self, to: int) -> None:
        self.scroll_to(y=max(0, to), animate=False, force=True, immediate=True)

    def action_move(self, down: int, right: int) -> None:
        """Go to the next spot in a direction; without one, scroll."""
        here = self.here
        if here is None:
            self._scroll(round(self.scroll_y) + down)
            return
        targets = self._sheet.targets
        if right:
            row = [i for i, t in enumerate(targets) if t.line == here.line]
            self.stand_on(row[min(max(0, row.index(self._at) + right), len(row) - 1)])
            return
        lines = sorted({t.line for t in targets})
        place = lines.index(here.line) + down
        if not 0 <= place < len(lines):
            # Beyond the last spot there may be lines to read.
            self._scroll(round(self.scroll_y) + down)
            return
        row = [i for i, t in enumerate(targets) if t.line == lines[place]]
        self.stand_on(min(row, key=lambda i: abs(targets[i].start - here.start)))

    def action_page(self, pages: int) -> None:
        """Scroll by what is in sight, the cursor to the nearest spot there."""
        self._scroll(round(self.scroll_y) + pages * self._room)
        top = round(self.scroll_y)
        seen = [i for i, t in enumerate(self._sheet.targets) if top <= t.line < top + self._room]
        if seen:
            self._at = seen[0] if pages > 0 else seen[-1]
        self.refresh()

    def action_edge(self, end: int) -> None:
        """Go to the first or the last line."""
        self._at = 0 if end < 0 else max(0, len(self._sheet.targets) - 1)
        self._scroll(0 if end < 0 else len(self._sheet.lines))
        self.refresh()

    def on_resize(self) -> None:
        """Ask for a sheet of the new width."""
        self.post_message(self.Resized())

    def on_click(self, event: Click) -> None:
        """Put the cursor on the spot that was clicked; open it when it is there already."""
        line = event.y + round(self.scroll_y)
        for index, target in enumerate(self._sheet.targets):
            if target.line == line and target.start <= event.x < target.start + target.width:
                if index == self._at:
                    self.post_message(self.Opened())
                self._at = index
                self.refresh()
                return

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Draw what came into sight."""
        super().watch_scroll_y(old_value, new_value)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return one line of what is in sight."""
        at = y + round(self.scroll_y)
        lines = self._sheet.lines
        made = strip(lines[at] if at < len(lines) else (), self.size.width, ascii=self._ascii)
        here = self.here
        # A terminal that became narrower may be drawn before there is a sheet of its width.
        if here is None or here.line != at or here.start >= self.size.width or not self.has_focus:
            return made
        stop = min(self.size.width, here.start + here.width)
        before, under, after = made.divide([here.start, stop, self.size.width])
        return Strip.join([before, under.apply_style(CURSOR), after])
