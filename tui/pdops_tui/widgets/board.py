"""All panes of the main screen, in the places the plan gives them."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Container
from textual.message import Message
from textual.widgets import Input

from pdops_tui.draw.compose import matrix_block, trend_block
from pdops_tui.draw.header import header_lines
from pdops_tui.draw.line import Line, rule, span
from pdops_tui.draw.panes import diagnosis_lines, event_lines, key_line, other_lines
from pdops_tui.draw.plan import Plan, plan
from pdops_tui.models.pools import ROLES
from pdops_tui.models.screen import Screen
from pdops_tui.models.text import clean
from pdops_tui.widgets.grid import GridView
from pdops_tui.widgets.lines import Lines

HELD = " HELD: p goes on "


class Board(Container):
    """Draws a Screen; holds no data of its own but the last one drawn."""

    class Ready(Message):
        """Its panes are there."""

    def __init__(self, *, ascii: bool) -> None:
        super().__init__()
        self.ready = False
        self._ascii = ascii
        self._plan: Plan | None = None
        self._drawn: tuple[Screen, bool, str] | None = None

    def compose(self) -> ComposeResult:
        """Return the panes."""
        yield Lines(id="top", ascii=self._ascii)
        with Container(id="body"):
            with Container(id="main"):
                for role in ROLES:
                    yield GridView(id=role.value, ascii=self._ascii)
                for name in ("others", "matrix", "trends"):
                    yield Lines(id=name, ascii=self._ascii)
            with Container(id="side"):
                yield Lines(id="diagnosis", ascii=self._ascii)
                yield Lines(id="events", ascii=self._ascii)
        yield Input(
            id="filter", placeholder="words in id, pool, node, zone or state; !word leaves out; kv>80", disabled=True
        )
        yield Lines(id="keys", ascii=self._ascii)

    def on_mount(self) -> None:
        """Show no table before there is one."""
        for grid in self.grids():
            grid.display = False
        self.ready = True
        self.post_message(self.Ready())

    def on_unmount(self) -> None:
        """Take no more drawings: a beat may still come while the session ends."""
        self.ready = False

    def grids(self) -> list[GridView]:
        """Return the grids in the order of the roles."""
        return [self.query_one(f"#{role.value}", GridView) for role in ROLES]

    def pane(self, name: str) -> Lines:
        """Return a pane of lines by its id."""
        return self.query_one(f"#{name}", Lines)

    @property
    def filter_box(self) -> Input:
        """Where the filter is typed."""
        return self.query_one("#filter", Input)

    def focus_first(self) -> None:
        """Put the cursor into the first table there is."""
        for grid in self.grids():
            if grid.display:
                grid.focus()
                return

    def say(self, text: str, *, trouble: bool = False) -> None:
        """Show one line instead of a header, while there is nothing else to show."""
        self.pane("top").show([span(f" {clean(text, 300)}", "bad" if trouble else "title")])
        self.pane("keys").show([key_line(self.size.width)])

    def open_filter(self) -> None:
        """Show the box and give it the keys."""
        self.filter_box.disabled, self.filter_box.display = False, True
        self.filter_box.focus()
        self._again()

    def close_filter(self) -> None:
        """Hide the box and give the keys back to the table."""
        self.filter_box.disabled, self.filter_box.display = True, False
        self.focus_first()
        self._again()

    def on_resize(self) -> None:
        """Share the new size out."""
        self._again()

    def _again(self) -> None:
        if self._drawn is not None:
            self.draw(*self._drawn)

    def draw(self, screen: Screen, held: bool, note: str = "") -> None:
        """Draw a screen; `held` says that it is kept although newer data is there, `note` stands before the keys."""
        self._drawn = (screen, held, note)
        width, height = self.size.width, self.size.height
        if width <= 0 or height <= 0:
            return
        layout = plan(screen, width, height, footer=1 if self.filter_box.disabled else 2)
        if layout != self._plan:
            self._plan = layout
            self._place(screen, layout)
        self.pane("top").show(header_lines(screen, width, layout.header, frozen=held))
        tables = {t.role: t for t in screen.tables}
        for role, grid in zip(ROLES, self.grids(), strict=True):
            grid.show(tables.get(role))
        self.pane("others").show(other_lines(screen.others[: layout.others], layout.main))
        self.pane("matrix").show(matrix_block(screen, layout.main, layout.matrix))
        self.pane("trends").show(trend_block(screen, layout.main, layout.trends))
        self._draw_side(screen, layout)
        replay = screen.snapshot.position is not None
        self.pane("keys").show([key_line(width, replay=replay, note=note)])

    def _place(self, screen: Screen, layout: Plan) -> None:
        body, main, side = (self.query_one(f"#{name}") for name in ("body", "main", "side"))
        body.styles.layout = "horizontal" if layout.side else "vertical"
        main.styles.width = layout.main
        main.styles.height = (
            "1fr" if layout.side else sum(layout.tables) + layout.others + layout.matrix + layout.trends
        )
        side.styles.width = layout.side + 1 if layout.side else "100%"
        side.styles.height = layout.diagnosis + layout.events
        self.pane("top").styles.height = layout.top
        heights = dict(zip((t.role for t in screen.tables), layout.tables, strict=True))
        for role, grid in zip(ROLES, self.grids(), strict=True):
            grid.display = heights.get(role, 0) > 0
            grid.styles.height = heights.get(role, 0)
        for name in ("others", "matrix", "trends", "diagnosis", "events"):
            rows: int = getattr(layout, name)
            self.pane(name).display = rows > 0
            self.pane(name).styles.height = rows
        if self.screen.focused is None:
            self.focus_first()

    def _draw_side(self, screen: Screen, layout: Plan) -> None:
        width = layout.side or layout.width
        edge: Line = span("│", "dim") if layout.side else ()
        lines = [rule(screen.diagnosis.title, width, "x: full trace")]
        lines += diagnosis_lines(screen.diagnosis, width, layout.diagnosis - 1)
        lines += [()] * (layout.diagnosis - len(lines))
        self.pane("diagnosis").show([(*edge, *line) for line in lines])
        events = [rule("EVENTS", width), *event_lines(screen.events, width, max(0, layout.events - 1))]
        events += [()] * (layout.events - len(events))
        self.pane("events").show([(*edge, *line) for line in events])
