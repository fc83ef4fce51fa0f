"""Draw the panes below the tables: routers and stores, diagnosis, events, keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pdops_tui.commands import footer
from pdops_tui.draw.line import Line, Span, cut, fit, span, wrap
from pdops_tui.draw.plot import spark
from pdops_tui.models.diagnosis import Diagnosis, Entry
from pdops_tui.models.events import Happening
from pdops_tui.models.format import Style
from pdops_tui.models.others import Other
from pdops_tui.models.text import cells, clip, clip_middle, pad
from pdops_tui.models.trends import BINS
from pdops_tui.models.trends import Line as Trended
from pdops_tui.places import MAIN

_LABEL = 8


def other_lines(others: Sequence[Other], width: int) -> list[Line]:
    """Return one line a router or store."""
    name = max((min(cells(o.name), max(8, width // 5)) for o in others), default=0)
    out = []
    for other in others:
        base: Style = "dim" if other.dim else ""
        head: Line = (
            (f" {pad(other.role, 7)} {pad(clip_middle(other.name, name), name)} ", base),
            (other.state.text, other.state.style),
        )
        parts: list[tuple[int, Line]] = [(0, head)]
        for order, (label, value) in enumerate(other.values, start=1):
            mark = f" {value.mark}" if value.mark else ""
            shown: Span = (f"{value.text}{mark}", "dim" if other.dim else value.style)
            parts.append((order, ((f"{label} ", "dim"), shown)))
        out.append(fit(parts, width))
    return out


def diagnosis_lines(pane: Diagnosis, width: int, rows: int | None) -> list[Line]:
    """Return the entries that matter most in `rows` lines; spare lines go to texts that are too long for one."""
    entries = list(pane.entries)
    if rows is None:
        return [line for entry in entries for line in entry_lines(entry, width)]
    if rows <= 0:
        return []
    if len(entries) > rows:
        keep = sorted(sorted(range(len(entries)), key=lambda i: (entries[i].drop, i))[:rows])
        entries = [entries[i] for i in keep]
    spare = rows - len(entries)
    out: list[Line] = []
    for entry in entries:
        lines = entry_lines(entry, width)
        if len(lines) - 1 <= spare:
            spare -= len(lines) - 1
            out.extend(lines)
        else:
            out.append(_one_line(entry, width))
    return out


def entry_lines(entry: Entry, width: int) -> list[Line]:
    """Return an entry on as many lines as it needs."""
    lead, label = _lead(entry)
    start = len(lead) + cells(label)
    texts = wrap(entry.text, max(10, width - start))
    first: Line = ((lead, ""), (label, entry.style), (texts[0], ""))
    rest: list[Line] = [((" " * start + text, ""),) for text in texts[1:]]
    return [cut(line, width) for line in (first, *rest)]


def _one_line(entry: Entry, width: int) -> Line:
    lead, label = _lead(entry)
    room = max(0, width - len(lead) - cells(label))
    return cut(((lead, ""), (label, entry.style), (clip(entry.text, room), "")), width)


def _lead(entry: Entry) -> tuple[str, str]:
    lead = " " * (entry.indent + 1)
    if not entry.text:
        return lead, entry.label
    return lead, (pad(entry.label, _LABEL) if entry.indent else f"{entry.label} ") if entry.label else ""


def event_lines(events: Sequence[Happening], width: int, rows: int | None) -> list[Line]:
    """Return the newest happenings, one a line."""
    if not events:
        return [span(" none in the time that is kept", "dim")][: rows if rows is not None else 1]
    shown = events if rows is None else events[: max(0, rows)]
    kind = max((min(cells(e.kind), 16) for e in shown), default=0)
    who = max((min(cells(e.who), max(8, width // 5)) for e in shown), default=0)
    return [
        cut(
            (
                (f" {e.time} ", "dim"),
                (pad(clip(e.kind, kind), kind), e.style),
                (f" {pad(clip_middle(e.who, who), who)} {e.detail}", "dim" if e.kind == "log" else ""),
            ),
            width,
        )
        for e in shown
    ]


def trend_lines(trends: Sequence[Trended], width: int) -> list[Line]:
    """Return one line a signal: label, the last minutes from left to right, the newest bin, where it is from."""
    label = max((cells(t.label) for t in trends), default=0)
    out: list[Line] = []
    for line in trends:
        known = line.over.values[np.isfinite(line.over.values)]
        newest = line.form(float(known[-1])) if len(known) and np.isfinite(line.over.values[-1]) else "?"
        drawn = spark(line.over, max(8, min(BINS, width - label - 22)), limit=line.limit)
        if not line.over.known:
            drawn = span("? not known over this time", "unknown")
        limit = f" /{line.form(line.limit)}" if line.limit is not None else ""
        out.append(
            cut(
                (
                    (f" {pad(line.label, label)} ", ""),
                    *drawn,
                    (f" {newest}", "unknown" if newest == "?" else "title"),
                    (f"{limit} {line.where}", "dim"),
                ),
                width,
            )
        )
    return out


def key_line(width: int, *, place: str = MAIN, replay: bool = False, note: str = "") -> Line:
    """Return the keys of a kind of place, the most needed first."""
    parts: list[tuple[int, Line]] = [(0, span(note, "cursor"))] if note else []
    for item in footer(place, replay=replay):
        lead = "" if parts else " "
        parts.append((item.rank, ((f"{lead}{item.shown}", "key"), (f" {item.short}", "dim"))))
    return fit(parts, width)


def key_at(line: Line, x: int) -> str:
    """Return the key that stands at a cell of a line of keys, as it is shown; empty between them."""
    end, key = 0, ""
    for text, style in line:
        end += cells(text)
        if style == "key":
            key = text.strip()
        elif style != "dim":
            key = ""
        if x < end:
            return key
    return ""
