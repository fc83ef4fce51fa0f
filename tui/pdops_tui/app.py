"""`pdops top`: one screen that draws what a feed gives, four times a second at most."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import replace
from functools import partial
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from pdops.clock import WallClock
from pdops.model.cluster import Role
from pdops_tui.draw.line import Line, span
from pdops_tui.draw.pages import cell_lines, help_lines, trace_lines
from pdops_tui.models.pools import Order
from pdops_tui.models.screen import Screen, Wishes, build
from pdops_tui.models.text import clean
from pdops_tui.snapshot import Action, Command, Feed, Snapshot
from pdops_tui.widgets.board import Board
from pdops_tui.widgets.dialogs import Page
from pdops_tui.widgets.grid import GridView

TICK_S = 0.25
SKIP_S = 60
TERMINATED = 143
"""Exit status after SIGTERM: what a shell shows of a program that it ended."""
_MOST_CELLS = 1000
"""COLUMNS and LINES beyond this are no terminal's, and a screen of that size would take the memory of the machine."""


class TopApp(App[None]):
    """The screen of one feed.

    Args:
        feed: where the data comes from; started and stopped by the caller.
        ascii: draw with ASCII characters only.
        no_color: use no colours; the environment's NO_COLOR does the same.
    """

    CSS_PATH = "top.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", priority=False, show=False),
        Binding("question_mark", "help", show=False),
        Binding("slash", "filter", show=False),
        Binding("escape", "clear", show=False),
        Binding("s", "sort", show=False),
        Binding("x", "trace", show=False),
        Binding("v,enter", "why", show=False),
        Binding("p", "hold", show=False),
        Binding("space", "replay('toggle', 0)", show=False),
        Binding("comma", "replay('step', -1)", show=False),
        Binding("full_stop", "replay('step', 1)", show=False),
        Binding("right_square_bracket", "replay('faster', 0)", show=False),
        Binding("left_square_bracket", "replay('slower', 0)", show=False),
        Binding("less_than_sign", f"replay('skip', -{SKIP_S})", show=False),
        Binding("greater_than_sign", f"replay('skip', {SKIP_S})", show=False),
    ]

    def __init__(self, feed: Feed, *, ascii: bool = False, no_color: bool = False) -> None:
        if no_color:
            # Textual reads this variable once, here, and removes it.
            os.environ["NO_COLOR"] = "1"
        super().__init__()
        self._feed = feed
        self._ascii = ascii
        self._wishes = Wishes()
        self._drawn: Screen | None = None
        self._seen: tuple[int, Wishes] | None = None
        self._building = False
        self._held: Snapshot | None = None
        self._clock = WallClock()
        self._rest_until_s = 0.0
        self.theme = "ansi-dark"

    def compose(self) -> ComposeResult:
        """Return the one board."""
        yield Board(ascii=self._ascii)

    def on_mount(self) -> None:
        """Begin to look at the feed."""
        # Ended by its default, the process would leave the terminal on the other screen, without a cursor.
        with contextlib.suppress(RuntimeError, ValueError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit, None, TERMINATED)
        self.set_interval(TICK_S, self.tick)
        self.tick()

    @property
    def board(self) -> Board:
        """The main screen's panes, also while a page lies over them."""
        return self.screen_stack[0].query_one(Board)

    # from feed to screen

    def tick(self) -> None:
        """Take the newest snapshot and have it built, unless it was drawn already or one is being built."""
        snapshot = self._held or self._feed.latest()
        failure = self._feed.failure
        if snapshot is None:
            if failure is not None:
                self.exit()
            self.board.say("pdops top  waiting for the first data")
            return
        if failure is not None and snapshot.trouble is None:
            snapshot = replace(snapshot, trouble=str(failure))
        wanted = (snapshot.seq, self._wishes)
        if self._building or wanted == self._seen:
            return
        asked = self._seen is None or self._seen[1] != self._wishes
        if not asked and self._clock.monotonic() < self._rest_until_s:
            return
        self._building, self._seen = True, wanted
        rows = {grid.id or "": grid.in_sight() for grid in self.board.grids()}
        self.run_worker(partial(self._build, snapshot, self._wishes, rows), thread=True, group="build")

    def _build(self, snapshot: Snapshot, wishes: Wishes, rows: dict[str, tuple[int, int]]) -> None:
        """Make the screen's data and the rows in sight, away from the thread that draws.

        What took long is followed by a rest as long, so that a large cluster leaves the keyboard half of the time.
        """
        begun = self._clock.monotonic()
        try:
            screen = build(snapshot, wishes)
            for table in screen.tables:
                table.rows(*rows.get(table.role.value, (0, 0)))
                table.rows(len(table.ids))
        except Exception as error:  # noqa: BLE001  one state that cannot be drawn must not end the session
            self.call_from_thread(self._not_built, f"this state cannot be drawn: {type(error).__name__}: {error}")
            return
        ended = self._clock.monotonic()
        self._rest_until_s = ended + (ended - begun)
        self.call_from_thread(self._draw, screen)

    async def settled(self) -> None:
        """Wait until the newest snapshot is drawn."""
        while self._building or self._drawn is None:
            await asyncio.sleep(0.01)

    def _not_built(self, why: str) -> None:
        if self._drawn is None:
            self._building = False
            self.board.say(f"[!] {why}", trouble=True)
        else:
            self._draw(replace(self._drawn, header=replace(self._drawn.header, trouble=clean(why, 300))))

    def _draw(self, screen: Screen) -> None:
        self._building, self._drawn = False, screen
        self.board.draw(screen, self._held is not None)
        if isinstance(self.screen, Page):
            self.screen.pager.remake()

    # what keys do

    def _wish(self, wishes: Wishes) -> None:
        self._wishes = wishes
        self.tick()

    def action_filter(self) -> None:
        """Ask for the words to filter by."""
        self.board.open_filter()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        self._wish(replace(self._wishes, filter=event.value))

    def on_input_submitted(self) -> None:
        """Keep the filter and go back to the table."""
        self.board.close_filter()

    def action_clear(self) -> None:
        """Take the filter away."""
        self.board.filter_box.value = ""
        if not self.board.filter_box.disabled:
            self.board.close_filter()
        self._wish(replace(self._wishes, filter=""))

    def action_sort(self) -> None:
        """Sort the table of the cursor by the column under it."""
        grid = self._focused_grid()
        if grid is None or grid.table is None:
            return
        role = grid.table.role
        order = self._wishes.orders.get(role, Order()).next(grid.selected_key)
        orders: dict[Role, Order] = {**self._wishes.orders, role: order}
        self._wish(replace(self._wishes, orders=orders))

    def _focused_grid(self) -> GridView | None:
        return self.focused if isinstance(self.focused, GridView) else None

    def action_hold(self) -> None:
        """Hold the screen still, or go on; a replay is paused instead."""
        latest = self._feed.latest()
        if latest is not None and latest.position is not None:
            self._feed.control(Command("toggle"))
            return
        self._held = None if self._held is not None else latest
        if self._drawn is not None:
            self.board.draw(self._drawn, self._held is not None)
        self.tick()

    def action_replay(self, action: Action, value: float) -> None:
        """Hand a wish to the feed; on a live one space holds the screen."""
        latest = self._feed.latest()
        if latest is not None and latest.position is None:
            if action == "toggle":
                self.action_hold()
            return
        self._feed.control(Command(action, value))

    # pages

    def action_help(self) -> None:
        """Show keys, signs, and the meaning of every column."""
        tables = self._drawn.tables if self._drawn is not None else ()
        self.push_screen(Page("HELP", partial(help_lines, tables), ascii=self._ascii))

    def action_trace(self) -> None:
        """Show all that the diagnosis says."""
        self.push_screen(Page("DIAGNOSIS, full trace", self._trace, ascii=self._ascii))

    def _trace(self, width: int) -> list[Line]:
        return trace_lines(self._drawn, width) if self._drawn is not None else [span(" no data yet", "unknown")]

    def action_why(self) -> None:
        """Show what is behind the cell under the cursor."""
        grid = self._focused_grid()
        if grid is None or grid.table is None or grid.selected is None or self._drawn is None:
            return
        row, place = grid.selected
        made = partial(cell_lines, grid.table, row, place, self._drawn)
        self.push_screen(Page("BEHIND THE CELL", made, ascii=self._ascii))


def run_top(feed: Feed, *, ascii: bool = False, no_color: bool = False) -> int:
    """Show a feed until the person quits; starts the feed and stops it. Return the exit status: 0, or 143 after SIGTERM.

    Raises:
        PdopsError: the feed failed before it gave anything to show.
    """
    for name in ("COLUMNS", "LINES"):
        asked = os.environ.get(name, "")
        if asked and not (asked.isascii() and asked.isdigit() and len(asked) <= 4 and int(asked) <= _MOST_CELLS):
            # Textual takes them before it asks the terminal.
            del os.environ[name]
    feed.start()
    app = TopApp(feed, ascii=ascii, no_color=no_color)
    try:
        app.run()
    finally:
        feed.stop()
    if feed.failure is not None and feed.latest() is None:
        raise feed.failure
    return app.return_code or 0
