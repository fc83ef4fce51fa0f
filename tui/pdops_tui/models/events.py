"""What happened, newest first: events, failed probes, and the last log lines."""

from __future__ import annotations

from dataclasses import dataclass

from pdops.model.frame import EventKind
from pdops.model.view import View
from pdops_tui.models.format import Style, moment
from pdops_tui.models.text import clean

LIMIT = 50
LOG_LINES = 5
_STYLE: dict[EventKind, Style] = {EventKind.DOWN: "bad", EventKind.RESTART: "warn"}


@dataclass(frozen=True, slots=True)
class Happening:
    """One line: when, what kind, to whom, and the detail."""

    time: str
    kind: str
    who: str
    detail: str
    style: Style = ""


def happenings(view: View, limit: int = LIMIT) -> tuple[Happening, ...]:
    """Return events and probes by time, then the last log lines, at most `limit` of them."""
    found: list[tuple[float, Happening]] = []
    for event in sorted(view.events, key=lambda e: -e.t_s)[:limit]:
        detail = " ".join(part for part in (event.detail, event.revision) if part)
        who = event.worker or (f"pool {event.pool}" if event.pool else "")
        made = Happening(
            moment(event.t_s, relative=view.relative), event.kind, clean(who), clean(detail), _STYLE.get(event.kind, "")
        )
        found.append((event.t_s, made))
    for probe in sorted(view.probes, key=lambda p: -p.t_s)[:limit]:
        word = {True: "ok", False: "failed", None: "not judged"}[probe.ok]
        style: Style = "bad" if probe.ok is False else "unknown" if probe.ok is None else ""
        who = probe.pair or probe.worker or ""
        time = moment(probe.t_s, relative=view.relative)
        found.append((probe.t_s, Happening(time, f"{probe.kind} {word}", clean(who), clean(probe.detail or ""), style)))
    found.sort(key=lambda pair: -pair[0])
    lines = [made for _, made in found]
    for log in sorted(view.logs, key=lambda line: -line.t_s)[:LOG_LINES]:
        time = moment(log.t_s, relative=view.relative)
        lines.append(Happening(time, "log", clean(log.worker), clean(log.line), "dim"))
    return tuple(lines[:limit])
