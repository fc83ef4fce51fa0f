"""What happened, newest first: events, failed probes, and the last log lines."""

from __future__ import annotations

from dataclasses import dataclass, replace

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


def of_worker(view: View, worker: str, limit: int = LIMIT) -> tuple[Happening, ...]:
    """Return what happened to one worker or its pairs, and what it logged, newest first."""
    known = view.cluster.get(worker)
    pool = known.pool if known is not None else None
    mine = replace(
        view,
        events=tuple(e for e in view.events if e.worker == worker or (e.worker is None and e.pool == pool)),
        probes=tuple(p for p in view.probes if p.worker == worker or worker in (p.pair or "").split(">")),
        logs=tuple(line for line in view.logs if line.worker == worker),
    )
    return timeline(mine, limit)


def timeline(view: View, limit: int = 500) -> tuple[Happening, ...]:
    """Return events, probes and log lines, newest first."""
    return tuple(made for _, made in _all(view, limit, limit)[:limit])


def happenings(view: View, limit: int = LIMIT) -> tuple[Happening, ...]:
    """Return events and probes by time, then the last log lines, at most `limit` of them."""
    found = _all(view, limit, 0)
    lines = [made for _, made in found] + [made for _, made in _logs(view, LOG_LINES)]
    return tuple(lines[:limit])


def _logs(view: View, limit: int) -> list[tuple[float, Happening]]:
    return [
        (log.t_s, Happening(moment(log.t_s, relative=view.relative), "log", clean(log.worker), clean(log.line), "dim"))
        for log in sorted(view.logs, key=lambda line: -line.t_s)[:limit]
    ]


def _all(view: View, limit: int, logs: int) -> list[tuple[float, Happening]]:
    """Return (Unix seconds, line) of events, probes and so many log lines, newest first."""
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
    found += _logs(view, logs)
    found.sort(key=lambda pair: -pair[0])
    return found
