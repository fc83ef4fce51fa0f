"""Every key and command by name; bindings, footer, help overlay and palette are made from this one list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pdops_tui import places as at

SKIP_S = 60
Group = Literal["look", "open", "cursor", "replay", "session", "sources", "matrix", "worker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCommand:
    """One command.

    Attributes:
        name: what the palette calls it; unique.
        keys: Textual's names of its keys, separated by commas; empty for a command that only the palette has.
        shown: the keys as a person reads them.
        help: one line for help and palette.
        action: the app's action, with its arguments.
        group: where help lists it.
        places: kinds of place where it works; empty for everywhere.
        feed: the kind of feed it is for.
        short: the word in the footer; empty keeps it out of there.
        rank: greater leaves a narrow footer first.
    """

    name: str
    keys: str
    shown: str
    help: str
    action: str
    group: Group = "session"
    places: frozenset[str] = frozenset()
    feed: Literal["any", "live", "replay"] = "any"
    short: str = ""
    rank: int = 50

    def works(self, place: str, *, replay: bool) -> bool:
        """Whether it does something at a kind of place, live or replayed."""
        return (not self.places or place in self.places) and self.feed in ("any", "replay" if replay else "live")


_MAIN = frozenset({at.MAIN})
_MATRIX = frozenset({at.MATRIX})
_WORKER = frozenset({at.WORKER})

COMMANDS: tuple[KeyCommand, ...] = (
    KeyCommand(name="quit", keys="q,ctrl+c", shown="q", help="quit", action="quit", short="quit", rank=1),
    KeyCommand(
        name="help", keys="question_mark", shown="?", help="this page", action="help", short="help", rank=2,
    ),
    KeyCommand(
        name="back", keys="escape", shown="esc", help="back to the place before; on the main screen: no filter",
        action="leave", group="open", short="back", rank=1, places=frozenset({
            at.POOL, at.WORKER, at.PAIR, at.MATRIX, at.DIAGNOSIS, at.RUNBOOK, at.CONFIRM, at.FLEET, at.EVENTS, at.START,
            at.COMPARE,
        }),
    ),
    KeyCommand(
        name="no filter", keys="escape", shown="esc", help="take the filter away", action="clear", group="look", places=_MAIN,
    ),
    KeyCommand(
        name="next pane", keys="", shown="tab", help="next table; arrows, page up and down, home and end move the cursor",
        action="app.focus_next", group="cursor", places=_MAIN, short="pane", rank=3,
    ),
    KeyCommand(
        name="open", keys="enter", shown="enter", help="open what is under the cursor: worker, pool, pair, hypothesis, runbook",
        action="open_here", group="open", short="open", rank=4,
    ),
    KeyCommand(
        name="filter", keys="slash", shown="/",
        help="filter workers: words must be in id, role, pool, node, zone or state; !word must not; node:n1 looks there only; "
        "kv>80 or ttft95>500ms compares a column; esc clears",
        action="filter", group="look", places=_MAIN, short="filter", rank=5,
    ),
    KeyCommand(
        name="sort", keys="s", shown="s", help="sort by the column under the cursor: down, up, inventory order",
        action="sort", group="look", places=_MAIN, short="sort", rank=6,
    ),
    KeyCommand(
        name="why", keys="v", shown="v",
        help="what is behind the cell under the cursor: raw number, source, why it is not known",
        action="why", group="look", places=_MAIN, short="why", rank=8,
    ),
    KeyCommand(
        name="diagnosis", keys="x", shown="x", help="the full trace of the diagnosis, evidence, what to do",
        action=f"open('{at.DIAGNOSIS}')", group="open", short="trace", rank=7,
    ),
    KeyCommand(
        name="matrix", keys="m", shown="m", help="KV transfers of every prefill and decode pair",
        action=f"open('{at.MATRIX}')", group="open", short="matrix", rank=9,
    ),
    KeyCommand(
        name="fleet", keys="r", shown="r", help="routers and KV stores", action=f"open('{at.FLEET}')", group="open",
        short="routers", rank=14,
    ),
    KeyCommand(
        name="events", keys="t", shown="t", help="events, probes and log lines over time",
        action=f"open('{at.EVENTS}')", group="open", short="events", rank=13,
    ),
    KeyCommand(
        name="start", keys="u", shown="u", help="how far the start of the bundled deployment is",
        action=f"open('{at.START}')", group="open", rank=20,
    ),
    KeyCommand(
        name="pause", keys="p,space", shown="p", help="hold the screen; data is still taken in", action="hold", feed="live",
        short="pause", rank=10,
    ),
    KeyCommand(
        name="pause replay", keys="p", shown="p", help="pause the replay", action="hold", feed="replay", group="replay",
    ),
    KeyCommand(
        name="play", keys="space", shown="space", help="play and pause", action="replay('toggle', 0)",
        feed="replay", group="replay", short="play", rank=10,
    ),
    KeyCommand(
        name="frame back", keys="comma", shown=",", help="one frame back", action="replay('step', -1)", feed="replay",
        group="replay", short="step", rank=11,
    ),
    KeyCommand(
        name="frame on", keys="full_stop", shown=".", help="one frame on", action="replay('step', 1)", feed="replay",
        group="replay",
    ),
    KeyCommand(
        name="slower", keys="left_square_bracket", shown="[", help="half the speed", action="replay('slower', 0)",
        feed="replay", group="replay", short="speed", rank=12,
    ),
    KeyCommand(
        name="faster", keys="right_square_bracket", shown="]", help="double speed", action="replay('faster', 0)",
        feed="replay", group="replay",
    ),
    KeyCommand(
        name="minute back", keys="less_than_sign", shown="<", help="a minute back",
        action=f"replay('skip', -{SKIP_S})", feed="replay", group="replay", short="seek", rank=13,
    ),
    KeyCommand(
        name="minute on", keys="greater_than_sign", shown=">", help="a minute on", action=f"replay('skip', {SKIP_S})",
        feed="replay", group="replay",
    ),
    KeyCommand(
        name="record", keys="R", shown="R", help="record to a file, with the last minutes before it; again: stop",
        action="record", feed="live", short="record", rank=15,
    ),
    KeyCommand(
        name="promise", keys="o", shown="o", help="judge by another SLO in this session", action="promise", short="SLO", rank=22,
    ),
    KeyCommand(
        name="columns", keys="c", shown="c", help="choose the columns of the table of the cursor", action="columns",
        group="look", places=_MAIN, short="columns", rank=16,
    ),
    KeyCommand(
        name="export", keys="w", shown="w", help="write what is on the screen to a file: CSV, JSON, Markdown, SVG, text",
        action="export", short="write", rank=17,
    ),
    KeyCommand(
        name="copy", keys="Y", shown="Y", help="copy screen and diagnosis as Markdown, for a ticket", action="copy", rank=23,
    ),
    KeyCommand(
        name="theme", keys="z", shown="z", help="next theme: terminal, light, blind (no red beside green), contrast, mono",
        action="theme", rank=24,
    ),
    KeyCommand(
        name="palette", keys="ctrl+p", shown="^p", help="every command by name", action="command_palette", short="palette",
        rank=18,
    ),
    *(
        KeyCommand(
            name=f"{n}0 %", keys=str(n), shown="", help=f"go to {n}0 % of the recording",
            action=f"replay('fraction', {n / 10})", feed="replay", group="replay",
        )
        for n in range(2, 10)
    ),
    KeyCommand(
        name="10 %", keys="1", shown="1 - 9", help="go to 10 % - 90 % of the recording", action="replay('fraction', 0.1)",
        feed="replay", group="replay",
    ),
    KeyCommand(
        name="next event", keys="e", shown="e", help="go to the next event", action="replay('event', 1)", feed="replay",
        group="replay", short="event", rank=14,
    ),
    KeyCommand(
        name="event before", keys="E", shown="E", help="go to the event before", action="replay('event', -1)", feed="replay",
        group="replay",
    ),
    KeyCommand(
        name="next change", keys="d", shown="d", help="go to the next change of the verdict or the first cause",
        action="replay('change', 1)", feed="replay", group="replay", short="change", rank=13,
    ),
    KeyCommand(
        name="change before", keys="D", shown="D", help="go to the change of the verdict before",
        action="replay('change', -1)", feed="replay", group="replay",
    ),
    KeyCommand(
        name="go to", keys="colon", shown=":", help="go to a moment: 90, -30, 12:44:10, 50%", action="go_to", feed="replay",
        group="replay", short="go to", rank=19,
    ),
    KeyCommand(
        name="mark", keys="M", shown="M", help="mark this moment; again: take the mark away", action="replay('mark', 0)",
        feed="replay", group="replay",
    ),
    KeyCommand(
        name="next mark", keys="apostrophe", shown="'", help="go to the next mark", action="replay('to_mark', 1)",
        feed="replay", group="replay",
    ),
    KeyCommand(
        name="mark before", keys="quotation_mark", shown='"', help="go to the mark before", action="replay('to_mark', -1)",
        feed="replay", group="replay",
    ),
    KeyCommand(
        name="next source", keys="n", shown="n", help="the next cluster or recording, when several are open",
        action="source(1)", group="sources",
    ),
    KeyCommand(
        name="source before", keys="N", shown="N", help="the cluster or recording before", action="source(-1)",
        group="sources",
    ),
    KeyCommand(
        name="compare", keys="C", shown="C", help="all open sources beside each other: before and after", action="compare",
        group="sources",
    ),
    KeyCommand(
        name="link", keys="L", shown="L", help="replay several recordings together, or each by itself", action="link",
        feed="replay", group="sources",
    ),
    KeyCommand(
        name="matrix value", keys="v", shown="v", help="next value: bandwidth, p99, failures, bytes, hand-off",
        action="matrix('value')", group="matrix", places=_MATRIX, short="value", rank=5,
    ),
    KeyCommand(
        name="matrix relative", keys="a", shown="a", help="as it is, or beside the median of all pairs",
        action="matrix('relative')", group="matrix", places=_MATRIX, short="relative", rank=6,
    ),
    KeyCommand(
        name="matrix worst first", keys="s", shown="s", help="rows and columns by their worst pair, or as in the inventory",
        action="matrix('worst')", group="matrix", places=_MATRIX, short="worst first", rank=7,
    ),
    KeyCommand(
        name="yank PromQL", keys="y", shown="y", help="copy the PromQL of the series under the cursor", action="yank",
        group="worker", places=_WORKER, short="yank PromQL", rank=5,
    ),
)  # fmt: skip


def command(name: str) -> KeyCommand:
    """Return the command of a name.

    Raises:
        KeyError: there is none.
    """
    return _BY_NAME[name]


_BY_NAME = {c.name: c for c in COMMANDS}


def bindings() -> dict[str, list[KeyCommand]]:
    """Return for each key its commands, those of few places first, so that the first that works at a place is meant."""
    found: dict[str, list[KeyCommand]] = {}
    for item in COMMANDS:
        for key in filter(None, item.keys.split(",")):
            found.setdefault(key, []).append(item)
    return {key: sorted(items, key=lambda c: (not c.places, c.feed == "any")) for key, items in found.items()}


def meant(key: str, place: str, *, replay: bool) -> KeyCommand | None:
    """Return what a key means at a kind of place, or None."""
    return next((c for c in bindings().get(key, ()) if c.works(place, replay=replay)), None)


def footer(place: str, *, replay: bool) -> list[KeyCommand]:
    """Return the commands for the last line, the most needed first."""
    return sorted((c for c in COMMANDS if c.short and c.works(place, replay=replay)), key=lambda c: c.rank)
