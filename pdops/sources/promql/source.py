"""Read a cluster from a Prometheus-compatible server: pool aggregates by the server, presence of every worker.

The number of questions per tick depends on the signals that exist, not on the number of workers: 46 for vLLM with NIXL,
66 with pdops' router and plugin, 160 at most; six more every two minutes to see what is new. Pages come under the
worker id `prometheus`: endpoint `pools` for what the server added up, endpoint `workers` for single workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from pdops.clock import Clock, WallClock
from pdops.errors import UnreachableError, UsageError
from pdops.model.cluster import Cluster
from pdops.model.frame import Event, EventKind, Frame
from pdops.model.view import Note
from pdops.sources.promql.api import CONFIGURATION, Answer, QueryError, Trouble
from pdops.sources.promql.client import PromqlClient
from pdops.sources.promql.columns import Collector, Grid
from pdops.sources.promql.frames import FrameMaker, failed
from pdops.sources.promql.names import Query
from pdops.sources.promql.notes import Notes
from pdops.sources.promql.presence import presence
from pdops.sources.promql.selector import Selector
from pdops.sources.promql.survey import PromqlSettings, Survey, survey
from pdops.sources.promql.targets import labels_of

__all__ = ["PromqlSettings", "PromqlSource"]

SURVEY_S = 120.0
"""How often names, targets and clocks are looked at again, in seconds."""
PRESENCE_QUERIES = 2


class PromqlSource:
    """A Source on the Prometheus HTTP API; `cluster` is the inventory, or what `connect` found.

    Without an inventory the cluster follows the targets: a new one is a scale-out event, one that left a scale-in.
    """

    def __init__(
        self, settings: PromqlSettings, *, cluster: Cluster | None = None, clock: Clock | None = None, name: str = ""
    ) -> None:
        self._settings = settings
        self._clock = clock or WallClock()
        self._inventory = cluster
        self._client = PromqlClient(
            settings.url, secret=settings.secret, headers=settings.headers, timeout_s=settings.timeout_s
        )
        self._selector = Selector.parse(settings.selector)
        self.cluster = cluster or Cluster(name=name or "prometheus", workers=())
        self.interval_s = settings.interval_s
        self._survey: Survey | None = None
        self._survey_due_s = 0.0
        self._notes = Notes()
        self._maker = FrameMaker()
        self._closed = False

    @property
    def notes(self) -> tuple[Note, ...]:
        """What a reader must know about the data itself, by code."""
        return self._notes.all()

    @property
    def queries_per_tick(self) -> int:
        """How many questions one tick takes; known after `connect`."""
        return PRESENCE_QUERIES + len(self._survey.queries) if self._survey is not None else PRESENCE_QUERIES

    @property
    def asked(self) -> int:
        """How many questions were asked so far."""
        return self._client.asked

    async def connect(self) -> None:
        """Find out what the server has, so that `cluster` is known.

        Raises:
            UnreachableError: it does not answer, or is too busy to.
            UsageError: it answers, but not as a server that has this cluster.
        """
        try:
            self._take(await self._ask_survey())
        except QueryError as error:
            kind = UsageError if error.trouble in CONFIGURATION else UnreachableError
            what = "Prometheus cannot be read" if kind is UsageError else "Prometheus does not answer"
            raise kind(what, where=self._client.url, why=error.why, hint=error.hint) from error

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield the history first, then one frame per interval until closed.

        Raises:
            UnreachableError, UsageError: nothing could be read at the start; later troubles are in the frames.
        """
        if self._survey is None:
            await self.connect()
        for frame in await self._history():
            yield frame
        while not self._closed:
            started = self._clock.monotonic()
            yield await self._tick()
            took = self._clock.monotonic() - started
            slow = f"one look took {took:.0f} s, longer than the interval of {self.interval_s:g} s"
            self._notes.say("slow", slow if took > self.interval_s else None, "ask less often, or narrow the selector")
            await self._clock.sleep(max(self.interval_s / 2.0, self.interval_s - took))

    async def aclose(self) -> None:
        """Close the connections; may be called twice."""
        self._closed = True
        await self._client.aclose()

    async def _ask_survey(self) -> Survey:
        known = self._survey.placement.known if self._survey is not None else {}
        name = self.cluster.name
        return await survey(self._client, self._settings, self._clock, self._inventory, name, known)

    def _take(self, found: Survey) -> None:
        self._survey, self._survey_due_s = found, self._clock.monotonic() + SURVEY_S
        self.cluster = found.placement.cluster
        self._notes.of_survey(found, given=self._inventory is not None)

    async def _history(self) -> list[Frame]:
        found = self._survey
        assert found is not None
        settling_s = max(self._settings.settling_s, self.interval_s)
        steps = int((self._settings.history_s - settling_s) / self.interval_s)
        if steps < 2:
            return []
        start = self._clock.now() - settling_s - (steps - 1) * self.interval_s
        try:
            return await self._look(found, Grid(start + found.skew_s, self.interval_s, steps))
        except QueryError as error:
            self._notes.say("history", f"the last minutes could not be read: {error.why}", error.hint)
            return []

    async def _tick(self) -> Frame:
        at_s = self._clock.now()
        found = self._survey
        assert found is not None
        try:
            # An empty or unmeasured survey is repeated: a server that has just started has it a moment later.
            young = not found.names or found.scrape_s is None
            if young or self._clock.monotonic() >= self._survey_due_s:
                before, found = found, await self._renewed(found)
                self._moved(before, found, at_s)
            (frame,) = await self._look(found, Grid(at_s + found.skew_s))
        except (QueryError, UsageError) as error:
            why = error.why or str(error)
            self._notes.say("server", f"the server gave nothing: {why}", error.hint)
            return failed(at_s, why)
        self._notes.say("server", None)
        return frame

    async def _renewed(self, found: Survey) -> Survey:
        """Survey again; what is known stays when the server is there but cannot tell."""
        try:
            self._take(found := await self._ask_survey())
        except QueryError as error:
            if error.trouble is Trouble.UNREACHABLE:
                raise
            self._notes.say("survey", f"names and targets could not be looked at again: {error.why}", error.hint)
        else:
            self._notes.say("survey", None)
        return found

    async def _look(self, found: Survey, grid: Grid) -> list[Frame]:
        """Ask everything about the moments of a grid."""
        started = self._clock.monotonic()
        up, stamps = await asyncio.gather(
            self._one(self._selector.of("up"), grid), self._one(f"timestamp({self._selector.of('up')})", grid)
        )
        placement = found.placement
        if grid.n == 1 and {labels_of(r) for r in up.rows} != {t.labels for t in placement.targets}:
            self._survey_due_s = started
        answers = await asyncio.gather(*(self._safe(q, grid) for q in found.queries))
        collector = Collector(placement, grid)
        troubles: list[tuple[Query, QueryError]] = []
        good = [up, stamps]
        for query, answer in zip(found.queries, answers, strict=True):
            if isinstance(answer, QueryError):
                troubles.append((query, answer))
            else:
                good.append(answer)
                collector.add(query, answer.rows, self._settings.role_label)
        columns = collector.columns()
        self._notes.of_look(troubles, good, collector)
        here = presence(placement, grid, up.rows, stamps.rows, found.fresh_s)
        self._notes.of_presence(here[-1], found.fresh_s)
        error = troubles[0][1].why if troubles and len(troubles) == len(found.queries) else None
        return self._maker.frames(
            grid=replace(grid, start_s=grid.start_s - found.skew_s),
            cluster=placement.cluster,
            columns=columns,
            here=here,
            skew_s=found.skew_s,
            took_s=self._clock.monotonic() - started,
            size_bytes=sum(a.size_bytes for a in good),
            error=error,
            facts=self._facts(found),
        )

    def _facts(self, found: Survey) -> Mapping[str, str]:
        codes = ("stale", "partial", "server", "unanswered")
        said = {code: self._notes.why(code) or "none" for code in codes}
        return {
            "names_escaped": found.escaped[0] if found.escaped else "none",
            "scrape_interval_s": f"{found.scrape_s:g}" if found.scrape_s is not None else "unknown",
            "rate_window_s": str(found.window_s),
            "queries_per_tick": str(self.queries_per_tick),
            **said,
        }

    def _moved(self, before: Survey, after: Survey, at_s: float) -> None:
        old, new = ({w.id: w for w in s.placement.cluster.workers} for s in (before, after))
        for names, kind, detail in (
            (new.keys() - old.keys(), EventKind.SCALE_OUT, "a new target in Prometheus"),
            (old.keys() - new.keys(), EventKind.SCALE_IN, "its target left Prometheus"),
        ):
            for name in sorted(names):
                pool = (new.get(name) or old[name]).pool
                self._maker.events.append(Event(t_s=at_s, kind=kind, worker=name, pool=pool, detail=detail))

    async def _one(self, expr: str, grid: Grid) -> Answer:
        if grid.n == 1:
            return await self._client.query(expr, grid.start_s)
        return await self._client.query_range(expr, grid.start_s, grid.end_s, grid.step_s)

    async def _safe(self, query: Query, grid: Grid) -> Answer | QueryError:
        try:
            return await self._one(query.expr, grid)
        except QueryError as error:
            return error
