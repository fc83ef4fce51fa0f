"""The registry of screens. A screen is one pure function: a scene in, a sheet of lines and spots out.

To add one: a file here with `sheet(scene) -> Sheet`, its kind in `places`, a line in `KINDS`, and a command that opens it in
`commands`. Nothing in here touches Textual, a clock or a file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pdops_tui import places as at
from pdops_tui.draw.line import span
from pdops_tui.draw.sheet import Sheet
from pdops_tui.places import Place
from pdops_tui.screens import compare, diagnosis, events, fleet, matrix, pair, pool, runbook, start, worker
from pdops_tui.screens.scene import Scene

Make = Callable[[Scene], Sheet]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of screen: what help says of it, how it is made, and whether it needs data to be drawn."""

    help: str
    make: Make
    needs_data: bool = True


KINDS: dict[str, Kind] = {
    at.POOL: Kind("one pool: what it does, its workers beside each other, what it lacks", pool.sheet),
    at.WORKER: Kind("one worker: vitals beside its pool, peers, transfer times over time, raw series", worker.sheet),
    at.PAIR: Kind("one pair: every value that is told of it, over time", pair.sheet),
    at.MATRIX: Kind("KV transfers of every prefill and decode pair", matrix.sheet),
    at.DIAGNOSIS: Kind("the diagnosis: trace, evidence over time, ruled out, missing, runbooks", diagnosis.sheet),
    at.RUNBOOK: Kind("what a runbook would do now, and its guards", runbook.sheet),
    at.CONFIRM: Kind("the same plan, to be carried out", runbook.confirm),
    at.FLEET: Kind("routers and KV stores", fleet.sheet),
    at.COMPARE: Kind("all open sources beside each other, and what changed", compare.sheet),
    at.EVENTS: Kind("events, probes and log lines over time", events.sheet),
    at.START: Kind("how far the start of a deployment is", start.sheet, needs_data=False),
}


def needs_data(place: Place) -> bool:
    """Whether a place shows what a feed gives; if not, it reads for itself."""
    kind = KINDS.get(place.kind)
    return kind is None or kind.needs_data


def sheet(scene: Scene) -> Sheet:
    """Return the sheet of a scene's place."""
    kind = KINDS.get(scene.place.kind)
    if kind is None:
        return Sheet((span(f" no screen is called {scene.place.label}", "unknown"),))
    if kind.needs_data and scene.data is None:
        return Sheet((span(" no data yet", "unknown"),))
    return kind.make(scene)
