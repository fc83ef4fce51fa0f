"""One line to type in, and a list to choose from, over whatever is on the screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.events import Click
from textual.screen import ModalScreen
from textual.widgets import Input

from pdops_tui.draw.line import Line, cut, rule, span
from pdops_tui.models.text import clean
from pdops_tui.widgets.lines import Lines

Complaint = str
"""Why what was typed cannot be taken; empty when it can."""


class Prompt(ModalScreen[str | None]):
    """Asks for one line. Enter hands it over when `check` has no complaint, escape hands over None.

    Args:
        title: what is asked for.
        hint: what may be typed.
        value: what stands there to begin with.
        check: returns why a line cannot be taken.
        ascii: draw with ASCII characters only.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", show=False)]

    def __init__(
        self,
        title: str,
        hint: str,
        value: str = "",
        check: Callable[[str], Complaint] = lambda _: "",
        *,
        ascii: bool,
    ) -> None:
        super().__init__()
        self._title, self._hint, self._value, self._check, self._ascii = title, hint, value, check, ascii
        self._complaint = ""

    def compose(self) -> ComposeResult:
        """Return title, line and hint, at the bottom of the screen."""
        with Container(id="prompt"):
            yield Lines(id="prompt-title", ascii=self._ascii)
            yield Input(self._value, id="prompt-line", select_on_focus=False)
            yield Lines(id="prompt-hint", ascii=self._ascii)

    def on_mount(self) -> None:
        """Give the line the keys."""
        self.query_one(Input).focus()

    def on_resize(self) -> None:
        """Draw title and hint for the new width."""
        self._say()

    def _say(self) -> None:
        width = self.size.width
        self.query_one("#prompt-title", Lines).show(
            [rule(self._title, width, "enter: do it  esc: leave it", focused=True)]
        )
        line = span(f" [!] {clean(self._complaint, 300)}", "bad") if self._complaint else span(f" {self._hint}", "dim")
        self.query_one("#prompt-hint", Lines).show([cut(line, width)])

    def on_input_changed(self, event: Input.Changed) -> None:
        """Take the complaint back while it is typed on; nobody else hears of it."""
        event.stop()
        self._complaint = ""
        self._say()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Hand the line over, or say why not."""
        event.stop()
        self._complaint = self._check(event.value)
        if self._complaint:
            self._say()
        else:
            self.dismiss(event.value)

    def action_give_up(self) -> None:
        """Hand over nothing."""
        self.dismiss(None)


class Chooser(ModalScreen[frozenset[str] | None]):
    """A list of things that are on or off. Space or a click switches one, enter hands over those that are on.

    Args:
        title: what is chosen.
        items: key, name and meaning of each, in order.
        chosen: the keys that are on to begin with.
        ascii: draw with ASCII characters only.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "give_up", show=False),
        Binding("enter", "take", show=False),
        Binding("space,x", "switch", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("a", "all", show=False),
    ]

    def __init__(
        self, title: str, items: Sequence[tuple[str, str, str]], chosen: frozenset[str], *, ascii: bool
    ) -> None:
        super().__init__()
        self._title, self._items, self._ascii = title, tuple(items), ascii
        self._chosen, self._at = set(chosen), 0

    def compose(self) -> ComposeResult:
        """Return title and list."""
        yield Lines(id="page-title", ascii=self._ascii)
        yield Lines(id="chooser", ascii=self._ascii)

    def on_resize(self) -> None:
        """Draw for the new size."""
        self._draw()

    def _top(self) -> int:
        return max(0, self._at - max(1, self.size.height - 1) + 1)

    def _draw(self) -> None:
        width, top = self.size.width, self._top()
        hint = "space: on or off  a: all  enter: do it  esc: leave it"
        self.query_one("#page-title", Lines).show([rule(self._title, width, hint, focused=True)])
        name = max((len(n) for _, n, _ in self._items), default=0)
        lines: list[Line] = []
        for index, (key, title, meaning) in enumerate(self._items):
            mark = "[x]" if key in self._chosen else "[ ]"
            here = index == self._at
            head = f"{'>' if here else ' '}{mark} {title:<{name}}"
            lines.append(cut(((head, "cursor" if here else ""), (f"  {meaning}", "dim")), width))
        self.query_one("#chooser", Lines).show(lines[top:])

    def action_move(self, by: int) -> None:
        """Move the cursor."""
        self._at = min(max(0, self._at + by), max(0, len(self._items) - 1))
        self._draw()

    def action_switch(self) -> None:
        """Switch what is under the cursor on or off."""
        if self._items:
            self._chosen ^= {self._items[self._at][0]}
            self._draw()

    def action_all(self) -> None:
        """Switch everything on."""
        self._chosen = {key for key, _, _ in self._items}
        self._draw()

    def on_click(self, event: Click) -> None:
        """Switch what was clicked."""
        row = event.screen_y - 1 + self._top()
        if 0 <= row < len(self._items):
            self._at = row
            self.action_switch()

    def action_take(self) -> None:
        """Hand over what is on."""
        self.dismiss(frozenset(self._chosen))

    def action_give_up(self) -> None:
        """Hand over nothing."""
        self.dismiss(None)
