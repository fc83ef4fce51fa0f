"""Read logs and configuration beside a source that only knows metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from pdops.clock import Clock, WallClock
from pdops.model.cluster import Cluster
from pdops.model.frame import Frame
from pdops.model.view import Note
from pdops.sources.around import Around
from pdops.sources.base import Source
from pdops.sources.facts.beside import FactsBeside
from pdops.sources.logs import LogReader


class Beside(Around):
    """Adds to every frame of a source what the inventory's workers logged and how they are set up.

    Args:
        source: gives the frames.
        inventory: names the logs and addresses; the source's own cluster may know fewer or more workers.
    """

    def __init__(self, source: Source, inventory: Cluster, clock: Clock | None = None) -> None:
        super().__init__(source)
        self._clock = clock or WallClock()
        self._logs = LogReader(inventory, clock=self._clock)
        self._facts = FactsBeside(inventory, self._clock)

    @property
    def notes(self) -> tuple[Note, ...]:
        """What the source says, then the logs and the configuration that cannot be read."""
        return (*self._source.notes, *self._logs.notes, *self._facts.notes)

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield the source's frames."""
        async for frame in self._source.frames():
            # A server answers for a moment ago, and its first frames are history; lines are of now in any case.
            logs = await self._logs.read(self._clock.now())
            read = self._facts.take()
            facts = {w: {**read.get(w, {}), **frame.facts.get(w, {})} for w in {**read, **frame.facts}}
            yield replace(frame, logs=(*frame.logs, *logs), facts=facts)

    async def aclose(self) -> None:
        """Let go of everything; may be called twice."""
        await self._source.aclose()
        await self._logs.aclose()
        await self._facts.aclose()
