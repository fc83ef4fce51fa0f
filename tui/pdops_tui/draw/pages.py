"""The text of the pages: help, the full trace, and what is behind one cell."""

from __future__ import annotations

from collections.abc import Sequence

from pdops.model.cluster import POOL_PREFIX
from pdops.sources.redact import redact_urls
from pdops_tui.commands import COMMANDS, Group
from pdops_tui.draw.line import Line, cut, span, wrap
from pdops_tui.draw.panes import entry_lines
from pdops_tui.draw.table import NAME, STATE, cell_at
from pdops_tui.models import columns
from pdops_tui.models.diagnosis import trace
from pdops_tui.models.pools import Row, Table
from pdops_tui.models.screen import Screen
from pdops_tui.models.text import clean, pad

GROUPS: tuple[tuple[Group, str], ...] = (
    ("session", "keys"),
    ("open", "keys that open a place"),
    ("look", "keys of the main screen"),
    ("cursor", "keys of the cursor"),
    ("matrix", "keys of the matrix"),
    ("worker", "keys of a worker"),
    ("replay", "keys of a replay"),
    ("sources", "keys of several sources"),
)
SIGNS = (
    ("[X] X", "wrong: over the SLO, or the diagnosis names it as the fault"),
    ("[!] !", "watch this: near a limit, or an overload"),
    ("[?] ?", "not known; v on a cell says why. Never read it as healthy"),
    ("ok", "answers, gives what it must, and no hypothesis names it"),
    (">= <=", "only a bound is known: the histogram's edges, or a part, say no more"),
    ("~", "some workers of the pool are not in the number, or were in it for a part of the window only"),
    (
        "X ! ? + ▲ M",
        "on a replay's bar: the verdict becomes fault, overload, unknown, healthy; an event; a mark. ┄: not searched yet",
    ),
    ("-", "in a line over time: not known for that span; in the matrix -- is a pair without a transfer in the window"),
    ("grey", "not about now: the worker is DOWN or STALE, the numbers are its last"),
)


def help_lines(tables: Sequence[Table], width: int) -> list[Line]:
    """Return keys, signs, and the meaning of every column."""
    lines: list[Line] = []
    for group, title in GROUPS:
        lines += _listed(title, [(c.shown, c.help) for c in COMMANDS if c.group == group and c.shown], width)
    lines += _listed("signs", SIGNS, width)
    fixed = (("WORKER", columns.WORKER_MEANING), ("STATE", columns.STATE_MEANING))
    known = [(t.role, t.columns) for t in tables] or list(columns.COLUMNS.items())
    for role, shown in known:
        entries = (*fixed, *((c.title, f"{c.meaning} ({', '.join(c.signals)})") for c in shown))
        lines += _listed(f"columns of {role.value}", entries, width)
    return lines


def trace_lines(screen: Screen, width: int) -> list[Line]:
    """Return all that the report says."""
    view = screen.snapshot.view
    return [line for entry in trace(screen.snapshot.report, view.notes) for line in entry_lines(entry, width)]


def cell_lines(table: Table, row: Row, place: int, screen: Screen, width: int) -> list[Line]:
    """Return what is behind one cell: meaning, text, raw numbers or why there are none, ranks when there are several."""
    cell = cell_at(row, place)
    if place in (NAME, STATE):
        title = "WORKER" if place == NAME else "STATE"
        meaning = columns.WORKER_MEANING if place == NAME else columns.STATE_MEANING
        signals: tuple[str, ...] = ()
    else:
        column = table.columns[place]
        title, meaning, signals = column.title, column.meaning, column.signals
    facts = [("shown", f"{cell.text} {cell.mark}".rstrip()), ("meaning", meaning), ("behind it", cell.why or "-")]
    ask = screen.ask
    ranks = [n for scope, n in ask.view.series if scope == row.id and any(n.startswith(f"{s}[") for s in signals)]
    for name in sorted(ranks):
        reading = ask.read.last(row.id, name)
        facts.append((clean(name), f"{reading.value:.6g}" if reading.value is not None else f"? {reading.why}"))
    if row.dim:
        facts.append(("age", ask.health(row.id).why or "not about now"))
    worker = ask.view.cluster.get(row.id) if not row.id.startswith(POOL_PREFIX) else None
    if worker is not None:
        parts = (
            redact_urls(worker.url or ""),
            worker.engine,
            worker.version,
            f"pool {worker.pool}",
            worker.node,
            worker.zone,
        )
        facts.append(("worker", clean("  ".join(p for p in parts if p))))
    return _listed(f"{row.name}  {title}", facts, width)


def _listed(title: str, entries: Sequence[tuple[str, str]], width: int) -> list[Line]:
    lead = max(len(label) for label, _ in entries) + 4
    lines: list[Line] = [span(f" {title}", "title")]
    for label, text in entries:
        texts = wrap(clean(text), max(10, width - lead - 1))
        lines.append(cut(((f"  {pad(label, lead - 2)}", "key"), (texts[0], "")), width))
        lines += [cut(span(" " * lead + more), width) for more in texts[1:]]
    return [*lines, ()]
