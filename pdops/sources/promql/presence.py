"""Say of every worker whether it answers the server's scrapes, and whether the server still scrapes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from pdops.model.series import Floats
from pdops.sources.promql.api import Row
from pdops.sources.promql.columns import Grid
from pdops.sources.promql.targets import Placement, labels_of

NO_TARGET = "no target of that address in Prometheus"


@dataclass(frozen=True, slots=True)
class Presence:
    """What the server's scrapes of one worker came to at one moment.

    `error` None means that it answers, `age_s` None that there is no sample of it. `stale` means that the server itself has not scraped it for too long to know.
    """

    worker: str
    error: str | None = None
    stale: bool = False
    age_s: float | None = None


def presence(
    placement: Placement, grid: Grid, up: Iterable[Row], stamps: Iterable[Row], fresh_s: float
) -> list[list[Presence]]:
    """Return the presence of every worker at every step of the grid.

    `up` are the `up` series, `stamps` the times of their samples. A sample older than `fresh_s` seconds says nothing.
    """
    values = {labels_of(row): grid.lay(row) for row in up}
    times = {labels_of(row): grid.lay(row) for row in stamps}
    nothing = np.full(grid.n, np.nan)
    by_worker: dict[str, dict[str, list[tuple[Floats, Floats]]]] = {}
    for target in placement.targets:
        if target.worker is not None and placement.main.get(target.instance) == target.worker:
            series = (values.get(target.labels, nothing), times.get(target.labels, nothing))
            by_worker.setdefault(target.worker, {}).setdefault(target.name, []).append(series)
    out: list[list[Presence]] = []
    for step in range(grid.n):
        now = grid.start_s + step * grid.step_s
        out.append(
            [_one(w.id, by_worker.get(w.id, {}), step, now, fresh_s) for w in placement.cluster.workers],
        )
    return out


def _one(
    worker: str, targets: Mapping[str, list[tuple[Floats, Floats]]], step: int, now: float, fresh_s: float
) -> Presence:
    if not targets:
        return Presence(worker, NO_TARGET)
    down: list[str] = []
    youngest: float | None = None
    fresh = there = False
    for name, copies in targets.items():
        best: float | None = None
        for up, stamp in copies:
            if np.isnan(up[step]):
                continue
            there = True
            age = max(0.0, now - float(stamp[step])) if np.isfinite(stamp[step]) else np.inf
            youngest = age if youngest is None else min(youngest, age)
            if age <= fresh_s:
                best = max(best or 0.0, float(up[step]))
        fresh = fresh or best is not None
        if best is not None and best < 1.0:
            down.append(name)
    if not there:
        return Presence(worker, NO_TARGET)
    if not fresh:
        return Presence(worker, None, True, youngest)
    if down:
        of = f" for {down[0]}, one of its {len(targets)} targets" if len(targets) > 1 else ""
        return Presence(worker, f"up == 0 in Prometheus{of}", False, youngest)
    return Presence(worker, None, False, youngest)
