"""Scrape the workers directly: every page on its own, one Frame a tick with what is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

from pdops.clock import Clock, WallClock
from pdops.model.cluster import Cluster
from pdops.model.frame import NOT_ASKED, Event, EventKind, Frame, Scrape
from pdops.model.view import NEXT_TRY, Note
from pdops.sources.events import EventDetector
from pdops.sources.facts.beside import FactsBeside
from pdops.sources.facts.engine import FactReader
from pdops.sources.fetch import MAX_BODY_BYTES, Fetcher
from pdops.sources.logs import LogPattern, LogReader
from pdops.sources.pages import targets_of
from pdops.sources.targets import FULL_EVERY_S, Target
from pdops.sources.turns import AT_ONCE, HOLD_S, Turns

TIMEOUT_S = 5.0
_GRACE = 0.5
_BEHIND = f"{NOT_ASKED}, pdops is behind"
"""Says nothing about the target, so nothing is concluded from it."""


class ScrapeSource:
    """Reads every page of a cluster once per interval.

    A page that does not answer at once never holds up the others: it is reported as not here yet, and what it says
    later joins the frame of that time with the time at which it was said. Frame times never go back: when the wall
    clock steps back, they go on with the monotonic clock.

    Args:
        interval_s: seconds between frames.
        timeout_s: longest exchange with one target, in seconds.
        facts_from_server_info: also read `/server_info`, which not every operator wants to be asked.
        facts: also collect what processes of this machine, start logs and engines tell of the configuration.
        log_pattern: log lines to keep beside warnings and errors.
        grace_s: how long a frame waits, in seconds, for pages that came within that time at the last try; half an
            interval by default.
        at_once: requests that run at the same time, those not counted that have run for `hold_s` seconds.

    Raises:
        InventoryError: no worker has an address.
    """

    def __init__(
        self,
        cluster: Cluster,
        interval_s: float = 1.0,
        timeout_s: float = TIMEOUT_S,
        clock: Clock | None = None,
        *,
        facts_from_server_info: bool = False,
        facts: bool = False,
        log_pattern: LogPattern | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
        full_every_s: float = FULL_EVERY_S,
        grace_s: float | None = None,
        at_once: int = AT_ONCE,
        hold_s: float = HOLD_S,
    ) -> None:
        self.cluster = cluster
        self.interval_s = interval_s
        self._grace_s = interval_s * _GRACE if grace_s is None else grace_s
        self._clock = clock or WallClock()
        self._offset_s = self._clock.now() - self._clock.monotonic()
        self._targets = targets_of(
            cluster, clock=self._clock, interval_s=interval_s, now=self._now, full_every_s=full_every_s
        )
        self.fetcher = Fetcher(self._clock, self._now, timeout_s=timeout_s, max_body_bytes=max_body_bytes)
        self._running: dict[asyncio.Task[Scrape], tuple[Target, float]] = {}
        self._turns = Turns(at_once, hold_s)
        self._detector = EventDetector(cluster, interval_s=interval_s)
        self._facts = FactReader(cluster, self.fetcher, server_info=facts_from_server_info)
        self._beside = FactsBeside(cluster, self._clock) if facts else None
        self._logs = LogReader(cluster, pattern=log_pattern, clock=self._clock)
        self._closed = False

    @property
    def notes(self) -> tuple[Note, ...]:
        """The logs and the configuration that cannot be read; pages speak for themselves."""
        return self._logs.notes + (self._beside.notes if self._beside is not None else ())

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield one frame per interval until closed; ticks that the reader was too slow for are left out."""
        next_s = self._clock.monotonic()
        try:
            while not self._closed:
                yield await self._tick()
                now = self._clock.monotonic()
                missed = max(0.0, now - next_s) // self.interval_s
                next_s += self.interval_s * (missed + 1)
                await self._clock.sleep(next_s - now)
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Stop what is running and close connections and files; may be called twice."""
        self._closed = True
        running, self._running = list(self._running), {}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._facts.aclose()
        if self._beside is not None:
            await self._beside.aclose()
        await self.fetcher.aclose()
        await self._logs.aclose()

    def _now(self) -> float:
        """Return Unix seconds that follow the wall clock forwards only."""
        monotonic = self._clock.monotonic()
        self._offset_s = max(self._offset_s, self._clock.now() - monotonic)
        return monotonic + self._offset_s

    async def _tick(self) -> Frame:
        done = [task for task in self._running if task.done()]
        late = [(self._running.pop(task)[0], task.result()) for task in done]
        now = self._clock.monotonic()
        busy = {target for target, _ in self._running.values()}
        prompt = []
        for target in self._targets:
            if target not in busy and target.due_s <= now + self.interval_s / 2:
                task = asyncio.create_task(self._scrape(target))
                self._running[task] = (target, now)
                if target.last_s <= self._grace_s:
                    prompt.append(task)
        if prompt:
            await asyncio.wait(prompt, timeout=self._grace_s)
        arrived = late + [(self._running.pop(t)[0], t.result()) for t in list(self._running) if t.done()]
        arrived += self._absent({target for target, _ in arrived})
        arrived.sort(key=lambda pair: pair[1].at_s)
        events = self._events(arrived)
        at_s = self._now()
        return Frame(
            at_s=at_s,
            scrapes=tuple(scrape for _, scrape in arrived),
            events=events,
            logs=await self._logs.read(at_s),
            facts=self._known(),
        )

    def _known(self) -> Mapping[str, Mapping[str, str]]:
        told = self._facts.take()
        if self._beside is None:
            return told
        read = self._beside.take()
        return {w: {**read.get(w, {}), **told.get(w, {})} for w in {**read, **told}}

    async def _scrape(self, target: Target) -> Scrape:
        async with self._turns.turn():
            return await target.scrape(self.fetcher)

    def _absent(self, here: set[Target]) -> list[tuple[Target, Scrape]]:
        now = self._clock.monotonic()
        since = dict(self._running.values())
        absent = []
        for target in self._targets:
            if target in here:
                continue
            if target in since:
                what = "no answer yet" if target.asked else _BEHIND
                why = f"{what}, {now - since[target]:.1f} s"
            else:
                why = f"{target.error or 'no answer'}{NEXT_TRY}{max(0.0, target.due_s - now):.1f} s"
            absent.append((target, target.waiting(why)))
        return absent

    def _events(self, arrived: list[tuple[Target, Scrape]]) -> tuple[Event, ...]:
        events: list[Event] = []
        for target, scrape in arrived:
            if scrape.error is not None and scrape.error.startswith(_BEHIND):
                continue
            found = self._detector.feed(scrape, answered=scrape.error is not None and scrape.error == target.mismatch)
            events += found
            if target.events:
                events += target.events
                target.events = []
            restarted = any(e.kind is EventKind.RESTART for e in found)
            if restarted:
                target.restarted()
                if self._beside is not None:
                    self._beside.again()
            self._facts.saw(scrape, restarted=restarted)
        return tuple(sorted(events, key=lambda event: event.t_s))
