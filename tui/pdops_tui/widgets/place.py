"""A place over the main screen: breadcrumbs, its sheet, its keys."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import Screen

from pdops_tui.draw.line import Line, span
from pdops_tui.draw.sheet import Sheet
from pdops_tui.places import Place
from pdops_tui.widgets.lines import Lines
from pdops_tui.widgets.sheet import SheetView

FRAME = 2
"""Lines that the head and the keys take."""


class PlaceScreen(Screen[None]):
    """One place; the app makes its sheet and hands it over."""

    def __init__(self, place: Place, *, ascii: bool) -> None:
        super().__init__()
        self.place = place
        self.shown = False
        self._ascii = ascii
        self.view = SheetView(ascii=ascii)

    def compose(self) -> ComposeResult:
        """Return head, sheet and keys."""
        yield Lines(id="place-head", ascii=self._ascii)
        yield self.view
        yield Lines(id="place-keys", ascii=self._ascii)

    def on_mount(self) -> None:
        """Give the sheet the keys."""
        self.view.focus()

    def show(self, head: Line, sheet: Sheet, keys: Line) -> None:
        """Draw these from now on."""
        self.shown = True
        self.query_one("#place-head", Lines).show([head])
        self.query_one("#place-keys", Lines).show([keys])
        self.view.show(sheet)

    def say(self, text: str) -> None:
        """Say one line in the place of the keys."""
        self.query_one("#place-keys", Lines).show([span(f" {text}", "title")])
