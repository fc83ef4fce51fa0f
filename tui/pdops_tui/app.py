"""`pdops top`: the main screen and the places over it, drawn from what a feed gives, four times a second at most."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Click
from textual.geometry import Size
from textual.widgets import Input

from pdops.clock import WallClock
from pdops.errors import PdopsError
from pdops.model.cluster import POOL_PREFIX, Role
from pdops_tui.commands import COMMANDS as ALL
from pdops_tui.commands import KeyCommand, bindings, footer, meant
from pdops_tui.desk import Desk, Starting
from pdops_tui.draw.header import place_head
from pdops_tui.draw.pages import cell_lines, help_lines
from pdops_tui.draw.panes import key_at, key_line
from pdops_tui.draw.sheet import Sheet
from pdops_tui.habits import Habits
from pdops_tui.heap import started
from pdops_tui.models.pools import Order
from pdops_tui.models.screen import Screen, build
from pdops_tui.models.text import clean
from pdops_tui.places import MAIN, POOL, START, WORKER, Place
from pdops_tui.screens import needs_data, sheet
from pdops_tui.screens.scene import Scene
from pdops_tui.session import MATRIX_VALUES, Session
from pdops_tui.snapshot import Action, Command, Feed, Snapshot
from pdops_tui.widgets.board import HELD, Board
from pdops_tui.widgets.dialogs import Page
from pdops_tui.widgets.grid import GridView
from pdops_tui.widgets.lines import Lines
from pdops_tui.widgets.paint import use
from pdops_tui.widgets.palette import ByName
from pdops_tui.widgets.place import PlaceScreen
from pdops_tui.widgets.terminal import Terminal

TICK_S = 0.25
_FIRST_TICK_S = 0.03
"""Until something is drawn; nobody should wait for a beat."""
_START_MOST_S = 10.0
"""A start that takes longer waits for something, and memory is tidied up meanwhile."""
_START_EVERY_S, _START_LOOKS = 2.0, 5
"""A start is looked at so often, and one whose state cannot be read so many times in a row at most."""
STILL_STARTING = (
    "the deployment is still starting (u shows how far): what does not answer yet is judged as if it should"
)
TERMINATED = 143
"""Exit status after SIGTERM: what a shell shows of a program that it ended."""
HUNG_UP = 129
"""Exit status after SIGHUP, when the terminal went away."""
_MOST_CELLS = 1000
"""COLUMNS and LINES beyond this are no terminal's, and a screen of that size would take the memory of the machine."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a drawing is made of: the snapshot, what the person asked for, and a beat for places that read for themselves."""

    seq: int
    asked: tuple[Session, Place | None, Size]
    beat: int = 0


class TopApp(Habits):
    """The screen of one feed.

    Args:
        feed: where the data comes from; started and stopped by the caller.
        ascii: draw with ASCII characters only.
        no_color: use no colours; the environment's NO_COLOR does the same.
        session: what to begin with.
        desk: what the command line lends.
    """

    CSS_PATH = "top.tcss"
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {ByName}
    BINDINGS: ClassVar[list[BindingType]] = [Binding(key, f"key('{key}')", show=False) for key in bindings()]

    def __init__(
        self,
        feed: Feed,
        *,
        ascii: bool = False,
        no_color: bool = False,
        session: Session | None = None,
        desk: Desk | None = None,
    ) -> None:
        if no_color:
            # Textual reads this variable once, here, and removes it.
            os.environ["NO_COLOR"] = "1"
        super().__init__()
        self.session = session or Session()
        self._feed = feed
        self._ascii = ascii
        self.board = Board(ascii=ascii)
        self._desk = desk or Desk()
        self._drawn: Screen | None = None
        self._seen: Wanted | None = None
        self._building = False
        self._starting, self._unread = False, 0
        self._order: tuple[Snapshot | None, Wanted, dict[str, tuple[int, int]]] | None = None
        self._held: Snapshot | None = None
        self._clock = WallClock()
        self._rest_until_s = 0.0
        use(self.session.theme)
        self.theme = "ansi-dark"

    def get_driver_class(self) -> type[Driver]:
        """Return Textual's choice, as one that notices when its terminal goes away."""
        found = super().get_driver_class()
        return Terminal if found is LinuxDriver else found

    def compose(self) -> ComposeResult:
        """Return the one board."""
        yield self.board

    def on_mount(self) -> None:
        """Begin to look at the feed."""
        # Ended by its default, the process would leave the terminal on the other screen, without a cursor.
        with contextlib.suppress(RuntimeError, ValueError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit, None, TERMINATED)
            # A connection that breaks is no reason to lose what is being recorded.
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.exit, None, HUNG_UP)
        self.set_interval(TICK_S, self.tick)
        self._hurry = self.set_interval(_FIRST_TICK_S, self.tick)
        self.set_timer(_START_MOST_S, started)

    def _first_drawn(self) -> None:
        """Do what could wait until there is something to see."""
        self._hurry.stop()
        started()
        self._ask_start()

    def _ask_start(self) -> None:
        if self._desk.starting is not None:
            self.run_worker(partial(self._look_at_start, self._desk.starting), thread=True, group="start")

    def _look_at_start(self, starting: Starting) -> None:
        goes_on: bool | None = None
        with contextlib.suppress(PdopsError):
            found = starting()
            goes_on = found is not None and found.get("phase") == "starting"
        self.call_from_thread(self._hear_of_start, goes_on)

    def _hear_of_start(self, goes_on: bool | None) -> None:
        """Open the start of a deployment that is still starting, as there is little else to see, and notice its end.

        None means that its state could not be read; where that lasts, nobody knows whether it goes on.
        """
        if goes_on and not self._starting:
            self.action_open(START)
        self._unread = self._unread + 1 if goes_on is None else 0
        waits = goes_on is None and self._unread < _START_LOOKS
        self._starting = bool(goes_on) or (waits and self._starting)
        if goes_on or waits:
            self.set_timer(_START_EVERY_S, self._ask_start)

    @property
    def places(self) -> list[Place]:
        """The places that lie over the main screen, the last one on top."""
        return [screen.place for screen in self.screen_stack if isinstance(screen, PlaceScreen)]

    @property
    def top(self) -> PlaceScreen | None:
        """The place on top, below any page; None on the main screen."""
        return next((s for s in reversed(self.screen_stack) if isinstance(s, PlaceScreen)), None)

    @property
    def replayed(self) -> bool:
        """Whether the feed is a recording, as far as is known."""
        latest = self._feed.latest()
        return latest is not None and latest.position is not None

    @property
    def _note(self) -> str:
        """What the last line says before the keys."""
        position = self._drawn.snapshot.position if self._drawn is not None else None
        said = self.session.notice or (position.said if position is not None else "")
        return f" {clean(said, 300)} " if said else HELD if self._held is not None else ""

    # from feed to screen

    def tick(self) -> None:
        """Take the newest snapshot and have it built, unless it was drawn already or one is being built."""
        if isinstance(self._driver, Terminal) and self._driver.lost:
            self.exit(None, HUNG_UP)
        if not self.is_running or not self.board.ready:
            return
        top = self.top
        if top is not None and not top.view.size.width:
            # What is there to draw on comes a moment later, and asks for a tick itself.
            return
        snapshot = self._held or self._feed.latest()
        failure = self._feed.failure
        if snapshot is None:
            if failure is not None:
                self.exit()
            self.board.say("pdops top  waiting for the first data")
            if top is None:
                return
        elif failure is not None and snapshot.trouble is None:
            snapshot = replace(snapshot, trouble=str(failure))
        elif self._starting and snapshot.trouble is None:
            snapshot = replace(snapshot, trouble=STILL_STARTING)
        if snapshot is not None:
            self.hear(snapshot)
        wanted = self._wanted(snapshot, top)
        if self._building or wanted == self._seen:
            return
        asked = self._seen is None or self._seen.asked != wanted.asked
        if not asked and self._clock.monotonic() < self._rest_until_s:
            return
        self._building, self._seen = True, wanted
        rows = {grid.id or "": grid.in_sight() for grid in self.board.grids()}
        self._order = (snapshot, wanted, rows)
        # Textual keeps a worker's arguments long after it ended, and without a description writes them all out.
        self.run_worker(self._build, thread=True, group="build", description="build")

    def on_board_ready(self) -> None:
        """Draw at once when there is something to draw on."""
        self.tick()

    def on_sheet_view_resized(self) -> None:
        """Draw for the new room."""
        self.tick()

    def _wanted(self, snapshot: Snapshot | None, top: PlaceScreen | None) -> Wanted:
        asked = (self.session, top.place if top else None, top.view.size if top else self.size)
        reads_itself = top is not None and not needs_data(top.place)
        beat = int(self._clock.monotonic()) if reads_itself else 0
        return Wanted(seq=snapshot.seq if snapshot else 0, asked=asked, beat=beat)

    def _build(self) -> None:
        """Make the screen's data, and the rows in sight or the sheet, away from the thread that draws.

        What took long is followed by a rest as long, so that a large cluster leaves the keyboard half of the time.
        """
        assert self._order is not None
        (snapshot, wanted, rows), self._order = self._order, None
        begun = self._clock.monotonic()
        session, place, size = wanted.asked
        made: Sheet | None = None
        try:
            screen = build(snapshot, session) if snapshot is not None else None
            if place is not None:
                scene = Scene(
                    place=place, width=size.width, height=size.height, data=screen, session=session, desk=self._desk
                )
                made = sheet(scene)
            else:
                for table in screen.tables if screen is not None else ():
                    table.rows(*rows.get(table.role.value, (0, 0)))
                    table.rows(len(table.ids))
        except Exception as error:  # noqa: BLE001  one state that cannot be drawn must not end the session
            self.call_from_thread(self._not_built, f"this state cannot be drawn: {type(error).__name__}: {error}")
            return
        ended = self._clock.monotonic()
        self._rest_until_s = ended + (ended - begun)
        self.call_from_thread(self._draw, screen, place, made)

    async def settled(self) -> None:
        """Wait until the newest snapshot is drawn, and the place on top has its sheet."""
        while self._building or self._drawn is None or (self.top is not None and not self.top.shown):
            await asyncio.sleep(0.01)

    def _not_built(self, why: str) -> None:
        top = self.top
        if self._drawn is None:
            self._building = False
            self.board.say(f"[!] {why}", trouble=True)
        else:
            self._draw(replace(self._drawn, header=replace(self._drawn.header, trouble=clean(why, 300))))
        if top is not None:
            top.say(f"[!] {clean(why, 300)}")

    def _draw(self, screen: Screen | None, place: Place | None = None, made: Sheet | None = None) -> None:
        self._building = False
        if not self.is_running or not self.board.ready:
            # What was being built when the person quit has nothing left to be drawn on.
            return
        if screen is not None:
            if self._drawn is None:
                self._first_drawn()
            self._drawn = screen
        top = self.top
        if top is None:
            if screen is not None:
                self.board.draw(screen, self._held is not None, self._note)
        elif made is not None and top.place == place:
            width, replay = self.size.width, self.replayed
            top.show(
                place_head(self.places, self._drawn, width, frozen=self._held is not None, starting=self._starting),
                made,
                key_line(width, place=top.place.kind, replay=replay, note=self._note),
            )
        if isinstance(self.screen, Page):
            self.screen.pager.remake()

    # what keys do

    def palette(self) -> list[KeyCommand]:
        """Return the commands that work where the person stands."""
        kind = self.top.place.kind if self.top else MAIN
        return [c for c in ALL if c.works(kind, replay=self.replayed)]

    async def action_key(self, key: str) -> None:
        """Do what a key means at this place."""
        top = self.top
        if self.session.notice:
            self.change(notice="")
        found = meant(key, top.place.kind if top else MAIN, replay=self.replayed)
        if found is not None:
            await self.run_action(found.action)

    def change(self, **parts: Any) -> None:
        """Replace parts of the session, and draw what follows from it."""
        self.session = replace(self.session, **parts)
        self.tick()

    def action_open(self, kind: str, id: str = "") -> None:
        """Put a place on top; nothing when it is there already."""
        place = Place(kind, id)
        if self.top is not None and self.top.place == place:
            return
        self.push_screen(PlaceScreen(place, ascii=self._ascii))

    def action_open_here(self) -> None:
        """Open what is under the cursor."""
        top = self.top
        if top is not None:
            here = top.view.here
            if here is not None and here.deed is not None:
                top.say("asked for; this may take a while")
                self.run_worker(partial(self._do, top, here.deed), thread=True, group="deed")
            elif here is not None and here.place is not None:
                self.action_open(here.place.kind, here.place.id)
            return
        grid = self._focused_grid()
        if grid is not None and grid.selected is not None:
            row = grid.selected[0]
            self.action_open(*((POOL, row.id.removeprefix(POOL_PREFIX)) if row.is_pool else (WORKER, row.id)))

    def _do(self, top: PlaceScreen, deed: Callable[[], str]) -> None:
        """Do what was confirmed, away from the thread that draws, and say what came of it."""
        try:
            said = deed()
        except PdopsError as error:
            said = f"{error}; {error.hint}"
        self.call_from_thread(top.say, clean(said, 300))

    def on_sheet_view_opened(self) -> None:
        """Open what was clicked."""
        self.action_open_here()

    def on_grid_view_opened(self) -> None:
        """Open the row that was clicked twice."""
        self.action_open_here()

    def on_grid_view_sorted(self) -> None:
        """Sort by the column whose head was clicked."""
        self.action_sort()

    async def on_click(self, event: Click) -> None:
        """Do what a key in the last line means, when it is clicked."""
        if isinstance(event.widget, Lines) and event.widget.id in ("keys", "place-keys") and event.widget.lines:
            shown = key_at(event.widget.lines[0], event.x)
            kind = self.top.place.kind if self.top else MAIN
            found = [c for c in footer(kind, replay=self.replayed) if c.shown == shown]
            if found:
                await self.run_action(found[0].action)

    def action_leave(self) -> None:
        """Take the place on top away."""
        if self.top is self.screen:
            self.pop_screen()
            self._seen = None
            self.call_after_refresh(self.tick)

    def action_matrix(self, what: str) -> None:
        """Show the matrix in another way."""
        wish = self.session.matrix
        if what == "value":
            after = MATRIX_VALUES[(MATRIX_VALUES.index(wish.value) + 1) % len(MATRIX_VALUES)]
            self.change(matrix=replace(wish, value=after))
        elif what == "relative":
            self.change(matrix=replace(wish, relative=not wish.relative))
        else:
            self.change(matrix=replace(wish, worst_first=not wish.worst_first))

    def action_yank(self) -> None:
        """Copy what the spot under the cursor offers."""
        top = self.top
        here = top.view.here if top is not None else None
        if top is None or here is None or not here.yank:
            return
        if self._desk.copy is None:
            # OSC 52: the terminal's own clipboard, also through SSH.
            self.copy_to_clipboard(here.yank)
            top.say(f"copied: {here.yank}")
        else:
            top.say(self._desk.copy(here.yank))

    def action_filter(self) -> None:
        """Ask for the words to filter by."""
        self.board.open_filter()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        self.change(filter=event.value)

    def on_input_submitted(self) -> None:
        """Keep the filter and go back to the table."""
        self.board.close_filter()

    def action_clear(self) -> None:
        """Take the filter away."""
        box = self.board.filter_box
        said = "filter taken away: every worker is shown" if self.session.filter or not box.disabled else ""
        box.value = ""
        if not box.disabled:
            self.board.close_filter()
        self.change(filter="", notice=said)

    def action_sort(self) -> None:
        """Sort the table of the cursor by the column under it."""
        grid = self._focused_grid()
        if grid is None or grid.table is None:
            return
        role = grid.table.role
        order = self.session.orders.get(role, Order()).next(grid.selected_key)
        orders: dict[Role, Order] = {**self.session.orders, role: order}
        self.change(orders=orders)

    def _focused_grid(self) -> GridView | None:
        return self.focused if isinstance(self.focused, GridView) else None

    def action_hold(self) -> None:
        """Hold the screen still, or go on; a replay is paused instead."""
        latest = self._feed.latest()
        if latest is not None and latest.position is not None:
            self._feed.control(Command("toggle"))
            return
        self._held = None if self._held is not None else latest
        self.change(paused=self._held is not None)

    def action_replay(self, action: Action, value: float) -> None:
        """Hand a wish to the feed."""
        self._feed.control(Command(action, value))

    # pages

    def action_help(self) -> None:
        """Show keys, signs, and the meaning of every column."""
        tables = self._drawn.tables if self._drawn is not None else ()
        self.push_screen(Page("HELP", partial(help_lines, tables), ascii=self._ascii))

    def action_why(self) -> None:
        """Show what is behind the cell under the cursor."""
        grid = self._focused_grid()
        if grid is None or grid.table is None or grid.selected is None or self._drawn is None:
            return
        row, place = grid.selected
        made = partial(cell_lines, grid.table, row, place, self._drawn)
        self.push_screen(Page("BEHIND THE CELL", made, ascii=self._ascii))


def run_top(
    feed: Feed,
    *,
    ascii: bool = False,
    no_color: bool = False,
    session: Session | None = None,
    desk: Desk | None = None,
) -> int:
    """Show a feed until the person quits; starts the feed and stops it. Return the exit status.

    It is 0, 143 after SIGTERM, or 129 when the terminal went away.

    Raises:
        PdopsError: the feed failed before it gave anything to show.
    """
    for name in ("COLUMNS", "LINES"):
        asked = os.environ.get(name, "")
        if asked and not (asked.isascii() and asked.isdigit() and len(asked) <= 4 and int(asked) <= _MOST_CELLS):
            # Textual takes them before it asks the terminal.
            del os.environ[name]
    feed.start()
    app = TopApp(feed, ascii=ascii, no_color=no_color, session=session, desk=desk)
    try:
        app.run()
    finally:
        feed.stop()
    if feed.failure is not None and feed.latest() is None:
        raise feed.failure
    return app.return_code or 0
