"""A pane of ready-made lines, and one that scrolls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from pdops_tui.draw.line import Line
from pdops_tui.widgets.paint import strip


class Lines(Widget):
    """Draws the lines it was given; a line that did not change is not drawn again."""

    def __init__(self, *, id: str, ascii: bool) -> None:
        super().__init__(id=id)
        self._ascii = ascii
        self._lines: tuple[Line, ...] = ()

    @property
    def lines(self) -> tuple[Line, ...]:
        """What is drawn."""
        return self._lines

    def show(self, lines: Sequence[Line]) -> None:
        """Draw these lines from now on."""
        old, self._lines = self._lines, tuple(lines)
        for y in range(max(len(old), len(self._lines))):
            before = old[y] if y < len(old) else None
            after = self._lines[y] if y < len(self._lines) else None
            if before != after:
                self.refresh(Region(0, y, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        """Return one line of the pane."""
        line = self._lines[y] if y < len(self._lines) else ()
        return strip(line, self.size.width, ascii=self._ascii)


class Pager(ScrollView, can_focus=True):
    """Lines that may be more than fit; `make` gives them for a width, again after every change."""

    def __init__(self, make: Callable[[int], Sequence[Line]], *, ascii: bool) -> None:
        super().__init__()
        self._make = make
        self._ascii = ascii
        self._lines: tuple[Line, ...] = ()

    @property
    def lines(self) -> tuple[Line, ...]:
        """All lines, also those scrolled out of sight."""
        return self._lines

    def on_resize(self) -> None:
        """Lay the lines out for the new width."""
        self.remake()

    def remake(self) -> None:
        """Ask for the lines again and draw what changed."""
        width = self.size.width
        lines = tuple(self._make(width)) if width else ()
        if lines != self._lines:
            self._lines = lines
            self.virtual_size = Size(width, len(lines))
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return one line of what is in sight."""
        at = y + round(self.scroll_y)
        line = self._lines[at] if at < len(self._lines) else ()
        return strip(line, self.size.width, ascii=self._ascii)
