"""What keys do beside moving about: record, go to a moment, another promise, columns, export, copy, themes, sources."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from textual.app import App

from pdops.errors import PdopsError
from pdops.model.cluster import Role, Slo
from pdops_tui import asked
from pdops_tui.desk import Desk
from pdops_tui.models import columns
from pdops_tui.models.format import size
from pdops_tui.models.screen import Screen
from pdops_tui.places import COMPARE
from pdops_tui.session import Session
from pdops_tui.snapshot import Command, Feed, Snapshot, Taping
from pdops_tui.tape import offered_name
from pdops_tui.widgets.grid import GridView
from pdops_tui.widgets.paint import THEMES, use
from pdops_tui.widgets.picture import picture
from pdops_tui.widgets.prompt import Chooser, Prompt

_COPY_MOST = 74_000
"""Bytes of text that terminals take through OSC 52 (100,000 bytes of base64 is xterm's and tmux's limit)."""


def became(taping: Taping) -> str:
    """Return what became of a recording, in a sentence for the person who asked for it."""
    lost = f", {taping.lost} frames lost: the disk was too slow" if taping.lost else ""
    if taping.trouble is not None:
        return taping.trouble + lost
    held = "; the disk hangs, what waited for it is lost" if taping.running else ""
    return f"recorded {taping.frames} frames, {size(taping.size_bytes)}: {taping.path}{lost}{held}"


class Habits(App[None]):
    """The part of the app that asks at prompts, writes files and hands wishes to the feed."""

    session: Session
    _feed: Feed
    _desk: Desk
    _ascii: bool
    _drawn: Screen | None
    _taping: Taping | None = None

    def change(self, **parts: Any) -> None:
        """Replace parts of the session, and draw what follows from it."""
        raise NotImplementedError

    def action_open(self, kind: str, id: str = "") -> None:
        """Put a place on top."""
        raise NotImplementedError

    def note(self, text: str) -> None:
        """Answer in the last line, until the next key."""
        self.change(notice=text)

    def hear(self, snapshot: Snapshot) -> None:
        """Say what became of a recording."""
        before, now = self._taping, snapshot.taping
        self._taping = now
        if now is None or (before is not None and before.running == now.running and before.path == now.path):
            return
        self.note(f"recording to {now.path}; R stops it" if now.running else became(now))

    # recordings

    def action_record(self) -> None:
        """Ask where to record to, or stop the recording that runs."""
        latest = self._feed.latest()
        if latest is None or latest.asking:
            self.note("nothing to record yet: no data came")
        elif latest.taping is not None and latest.taping.running:
            self._feed.control(Command("stop_recording"))
        else:
            offered = offered_name(latest.view.cluster.name, latest.view.at_s, Path.cwd())
            hint = "a new file; the last minutes are put before what comes"
            self._prompt("RECORD TO", hint, str(offered), self._record)

    def _record(self, path: str) -> str:
        if not path.strip():
            return "a name is needed"
        self._feed.control(Command("record", text=path.strip()))
        return ""

    def action_go_to(self) -> None:
        """Ask for a moment of the recording."""
        self._prompt("GO TO", asked.MOMENT_HINT, "", self._go_to)

    def _go_to(self, text: str) -> str:
        latest = self._feed.latest()
        if latest is None or latest.position is None:
            return "nothing is replayed"
        try:
            self._feed.control(asked.parse_moment(text, latest.position))
        except ValueError as error:
            return str(error)
        return ""

    # several sources

    def action_source(self, by: int) -> None:
        """Show the next source, or the one before."""
        latest = self._feed.latest()
        if latest is None or len(latest.sources) < 2:
            self.note("one source is open; give -c or --replay more than once for several")
            return
        number = (latest.number + by) % len(latest.sources)
        self._feed.control(Command("source", number))
        self.note(f"{number + 1} of {len(latest.sources)}: {latest.sources[number]}")

    def action_compare(self) -> None:
        """Hold all sources beside each other."""
        self.action_open(COMPARE)

    def action_link(self) -> None:
        """Replay the recordings together, or each by itself."""
        latest = self._feed.latest()
        if latest is not None and len(latest.sources) > 1:
            self._feed.control(Command("link"))
            self.note("each recording is replayed by itself" if latest.linked else "recordings are replayed together")

    # what is judged and shown

    def action_promise(self) -> None:
        """Ask for the SLO to judge by in this session."""
        latest = self._feed.latest()
        if latest is not None:
            text = asked.promise_text(latest.view.cluster.slo)
            self._prompt("SLO FOR THIS SESSION", asked.PROMISE_HINT, text, self._promise)

    def _promise(self, text: str) -> str:
        latest = self._feed.latest()
        try:
            slo = asked.parse_promise(text, latest.view.cluster.slo if latest is not None else Slo())
        except ValueError as error:
            return str(error)
        self._feed.control(Command("promise", slo=slo))
        self.change(
            slo=slo, notice="judged by the inventory's SLO" if slo is None else "judged by your SLO; o changes it"
        )
        return ""

    def action_columns(self) -> None:
        """Choose the columns of the table of the cursor."""
        tables = self._drawn.tables if self._drawn is not None else ()
        grid = self.focused
        role = grid.table.role if isinstance(grid, GridView) and grid.table is not None else None
        role = role or next((t.role for t in tables), None)
        if role is None:
            self.note("there is no table yet")
            return
        known = columns.COLUMNS[role]
        chosen = frozenset(c.key for c in known) - self.session.hidden.get(role, frozenset())
        chooser = Chooser(
            f"COLUMNS OF {role.value.upper()}", [(c.key, c.title, c.meaning) for c in known], chosen, ascii=self._ascii
        )
        self.push_screen(chooser, lambda kept: self._choose(role, kept))

    def _choose(self, role: Role, kept: frozenset[str] | None) -> None:
        if kept is not None:
            gone = frozenset(c.key for c in columns.COLUMNS[role]) - kept
            self.change(hidden={**self.session.hidden, role: gone})

    def action_theme(self) -> None:
        """Draw in the next palette."""
        names = list(THEMES)
        after = names[(names.index(self.session.theme) + 1) % len(names)] if self.session.theme in names else names[0]
        use(after)
        self.change(theme=after, notice=f"theme {after}: {THEMES[after].help}")
        for screen in self.screen_stack:
            for widget in screen.walk_children():
                widget.refresh()

    # out of the screen

    def action_export(self) -> None:
        """Ask for a file to write what is on the screen to."""
        if self._drawn is None:
            self.note("nothing to export yet: no data came")
            return
        from pdops_tui.export import ENDINGS

        view = self._drawn.snapshot.view
        offered = offered_name(view.cluster.name, 0.0 if view.relative else view.at_s, Path.cwd(), ".csv")
        # Taken now, since the prompt is no part of it.
        take = partial(self._export, self._drawn, picture(self))
        self._prompt("EXPORT TO", f"its ending chooses the form: {' '.join(ENDINGS)}", str(offered), take)

    def _export(self, drawn: Screen, svg: str, path: str) -> str:
        from pdops_tui.export import to_text, write_new

        path = path.strip()
        ending = Path(path).suffix.casefold()
        try:
            text = svg if ending == ".svg" else to_text(drawn, ending, self.size.width)
            self.note(f"wrote {write_new(path, text)}")
        except PdopsError as error:
            return f"{error}: {error.hint}" if error.hint else str(error)
        return ""

    def action_copy(self) -> None:
        """Copy the screen and the diagnosis as Markdown."""
        if self._drawn is None:
            self.note("nothing to copy yet: no data came")
            return
        from pdops_tui.export import to_markdown

        text = to_markdown(self._drawn)
        if self._desk.copy is not None:
            self.note(self._desk.copy(text))
        elif len(text.encode("utf-8", "replace")) > _COPY_MOST:
            self._keep_copy("too long for the terminal's clipboard: ")
        else:
            # OSC 52: the terminal's own clipboard, also through SSH; nobody answers whether it took it.
            self.copy_to_clipboard(text)
            self.note("copied as Markdown by OSC 52; if nothing arrived: w, and a name that ends in .md")

    def _keep_copy(self, why: str) -> None:
        from pdops_tui.export import to_markdown, write_new

        assert self._drawn is not None
        view = self._drawn.snapshot.view
        path = offered_name(view.cluster.name, 0.0 if view.relative else view.at_s, Path.cwd(), ".md")
        try:
            self.note(f"{why}wrote {write_new(str(path), to_markdown(self._drawn))}")
        except PdopsError as error:
            self.note(f"{why}{error}")

    def _prompt(self, title: str, hint: str, value: str, take: Callable[[str], str]) -> None:
        self.push_screen(Prompt(title, hint, value, take, ascii=self._ascii))
