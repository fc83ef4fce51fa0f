"""What happened: a strip of the last minutes, then every event, probe and log line, newest first."""

from __future__ import annotations

import numpy as np

from pdops.model.view import View
from pdops_tui.draw.line import Line
from pdops_tui.draw.panes import event_lines
from pdops_tui.draw.plot import LEVELS
from pdops_tui.draw.sheet import Draft, Sheet
from pdops_tui.models.events import timeline
from pdops_tui.models.format import moment
from pdops_tui.models.text import clean, pad
from pdops_tui.places import WORKER, Place
from pdops_tui.screens.scene import Scene

_NAME = 14


def sheet(scene: Scene) -> Sheet:
    """Return the strip and the lines; a line of a worker leads to it."""
    view = scene.ask.view
    out = Draft(scene.width)
    begin, end = moment(view.start_s, relative=view.relative), moment(view.at_s, relative=view.relative)
    out.title("EVENTS", f"{begin} to {end}")
    out.extend(_strip(view, max(10, scene.width - _NAME - 8)))
    out.title("NEWEST FIRST", "enter opens the worker")
    found = timeline(view)
    lines = event_lines(found, scene.width, None)
    for happening, line in zip(found, lines, strict=False):
        if view.cluster.get(happening.who) is not None:
            out.spot(line, Place(WORKER, happening.who), start=1)
        else:
            out.add(line)
    if not found:
        out.extend(lines)
    return out.sheet()


def _strip(view: View, width: int) -> list[Line]:
    """Return one line a kind: how many over time, and altogether."""
    kinds: dict[str, list[float]] = {}
    for event in view.events:
        kinds.setdefault(str(event.kind), []).append(event.t_s)
    for probe in view.probes:
        kinds.setdefault(f"{probe.kind} {'ok' if probe.ok else 'failed' if probe.ok is False else '?'}", []).append(
            probe.t_s
        )
    if view.logs:
        kinds["log"] = [line.t_s for line in view.logs]
    out: list[Line] = []
    for kind, times in sorted(kinds.items()):
        counts, _ = np.histogram(times, bins=width, range=(view.start_s, max(view.at_s, view.start_s + 1e-9)))
        most = max(1, int(counts.max()))
        text = "".join(LEVELS[min(7, round(c / most * 7))] if c else " " for c in counts)
        out.append(((f" {pad(clean(kind, _NAME), _NAME)} ", "dim"), (text, "key"), (f" {len(times):>4}", "")))
    return out
