"""Pages over the main screen: help, the full trace, and what is behind one cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

from pdops_tui.draw.line import Line, fit, rule
from pdops_tui.widgets.lines import Lines, Pager


class Page(ModalScreen[None]):
    """A title, lines that scroll, and the way back. `make` gives the lines for a width and is asked again on news."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,x,v,question_mark,enter", "dismiss", show=False),
        Binding("j", "down", show=False),
        Binding("k", "up", show=False),
    ]

    def __init__(self, title: str, make: Callable[[int], Sequence[Line]], *, ascii: bool) -> None:
        super().__init__()
        self._title = title
        self._ascii = ascii
        self.pager = Pager(make, ascii=ascii)

    def compose(self) -> ComposeResult:
        """Return title, lines and the way back."""
        yield Lines(id="page-title", ascii=self._ascii)
        yield self.pager
        yield Lines(id="page-keys", ascii=self._ascii)

    def on_mount(self) -> None:
        """Give the pager the keys."""
        self.pager.focus()

    def on_resize(self) -> None:
        """Draw title and keys for the new width."""
        width = self.size.width
        self.query_one("#page-title", Lines).show([rule(self._title, width, focused=True)])
        keys = [(0, ((" esc", "key"), (" back", "dim"))), (1, (("arrows", "key"), (" scroll", "dim")))]
        self.query_one("#page-keys", Lines).show([fit(keys, width)])  # type: ignore[arg-type]

    def action_down(self) -> None:
        """Scroll one line down."""
        self.pager.scroll_down(animate=False)

    def action_up(self) -> None:
        """Scroll one line up."""
        self.pager.scroll_up(animate=False)
