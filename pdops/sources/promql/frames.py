"""Make Frames of columns and presence, and see restarts in them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pdops.catalog.binding import CANONICAL, Column
from pdops.model.cluster import CLIENT, ROUTER, Cluster, Role, pool_key
from pdops.model.frame import Event, EventKind, Frame, Layout, Scrape
from pdops.model.series import Floats
from pdops.sources.promql.columns import Grid
from pdops.sources.promql.pages import GrowingPage, LoosePage
from pdops.sources.promql.presence import Presence
from pdops.sources.promql.targets import SERVER

POOLS = "pools"
WORKERS = "workers"
_RECENT_S = 900.0
_SAME_START_S = 1.0
_ANSWERS = Layout(())
_NOTHING = np.empty(0)


def failed(at_s: float, why: str) -> Frame:
    """Return the frame of a tick in which the server gave nothing; no word about any worker is in it."""
    scrape = Scrape(worker=SERVER, engine=CANONICAL, at_s=at_s, error=why, endpoint=POOLS)
    return Frame(at_s=at_s, scrapes=(scrape,))


class FrameMaker:
    """Remembers layouts, process starts and the facts given last."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._pools = GrowingPage()
        self._workers = LoosePage()
        self._started: dict[str, float] = {}
        self._facts: Mapping[str, str] = {}

    def frames(
        self,
        *,
        grid: Grid,
        cluster: Cluster,
        columns: Mapping[Column, Floats],
        here: list[list[Presence]],
        skew_s: float,
        took_s: float,
        size_bytes: int,
        error: str | None,
        facts: Mapping[str, str],
    ) -> list[Frame]:
        """Return one frame per step of a grid in our own time.

        A worker that the server no longer scrapes has no entry, as nothing was heard of it; what it said before is not
        repeated, and a pool of only such workers has no values either. Steps of which the server has no presence at all
        are left out.
        """
        ids = {w.id for w in cluster.workers}
        pools = {c: v for c, v in columns.items() if c.scope not in ids}
        single = {c: v for c, v in columns.items() if c.scope in ids}
        layout, values = self._pools.lay(pools)
        scopes = np.array([c.scope for c in self._pools.columns])
        out: list[Frame] = []
        for step in range(grid.n):
            at_s = grid.start_s + step * grid.step_s
            if grid.n > 1 and all(p.age_s is None for p in here[step]):
                continue
            stale = {p.worker for p in here[step] if p.stale}
            row = values[step] if len(values) else np.full(len(layout.series), np.nan)
            silent = _silent(cluster, stale)
            if silent and len(scopes):
                row = np.where(np.isin(scopes, list(silent)), np.nan, row)
            given = {c: float(v[step]) for c, v in single.items() if c.scope not in stale and np.isfinite(v[step])}
            self._restarts(given, at_s, skew_s)
            scrapes = [_answer(p, at_s) for p in here[step] if not p.stale]
            common = {"worker": SERVER, "engine": CANONICAL, "at_s": at_s, "duration_s": took_s}
            if error is not None:
                scrapes.append(Scrape(**common, endpoint=POOLS, error=error))  # type: ignore[arg-type]
            else:
                scrapes.append(
                    Scrape(**common, endpoint=POOLS, layout=layout, values=row, size_bytes=size_bytes)  # type: ignore[arg-type]
                )
            if given:
                names, some = self._workers.lay(given)
                scrapes.append(Scrape(**common, endpoint=WORKERS, layout=names, values=some))  # type: ignore[arg-type]
            out.append(Frame(at_s=at_s, scrapes=tuple(scrapes), events=self._take_events(), facts=self._news(facts)))
        return out

    def _restarts(self, given: Mapping[Column, float], at_s: float, skew_s: float) -> None:
        for column, value in given.items():
            if column.signal != "process_start_seconds":
                continue
            before = self._started.get(column.scope)
            began = value - skew_s
            if before is not None and began <= before + _SAME_START_S:
                continue
            self._started[column.scope] = began
            if before is not None or at_s - began <= _RECENT_S:
                detail = "the process started" if before is None else "the process started anew"
                self.events.append(Event(t_s=began, kind=EventKind.RESTART, worker=column.scope, detail=detail))

    def _take_events(self) -> tuple[Event, ...]:
        taken = tuple(self.events)
        self.events.clear()
        return taken

    def _news(self, facts: Mapping[str, str]) -> Mapping[str, Mapping[str, str]]:
        if facts == self._facts:
            return {}
        self._facts = dict(facts)
        return {SERVER: self._facts}


def _answer(found: Presence, at_s: float) -> Scrape:
    if found.error is not None:
        return Scrape(worker=found.worker, engine=CANONICAL, at_s=at_s, error=found.error)
    return Scrape(worker=found.worker, engine=CANONICAL, at_s=at_s, layout=_ANSWERS, values=_NOTHING)


def _silent(cluster: Cluster, stale: set[str]) -> set[str]:
    """Return the scopes that only stale workers speak for."""
    if not stale:
        return set()
    out = {pool_key(p) for p in cluster.pools() if all(w.id in stale for w in cluster.of_pool(p))}
    routers = cluster.of_role(Role.ROUTER)
    return out | {CLIENT, ROUTER} if routers and all(w.id in stale for w in routers) else out
