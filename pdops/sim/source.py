"""A simulated cluster as a source of Frames."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from pdops.clock import Clock, WallClock
from pdops.model.cluster import Cluster
from pdops.model.frame import Frame
from pdops.model.view import Note
from pdops.sim.instruments import Instruments


class Simulated(Protocol):
    """What the world sees of a simulation; virtual seconds begin at 0."""

    @property
    def cluster(self) -> Cluster:
        """Who is there, and what is promised."""
        ...

    @property
    def instruments(self) -> Mapping[str, Instruments]:
        """The pages, by a name of their own; one that joins later is added."""
        ...

    def advance(self, to_s: float) -> None:
        """Let everything happen up to a virtual second."""
        ...

    def frame(self) -> Frame:
        """Return all pages now, and what happened since the last frame."""
        ...


class SimSource:
    """Gives one Frame per interval of virtual time, as fast as possible or paced.

    Args:
        simulation: what is looked at.
        interval_s: virtual seconds between frames.
        until_s: virtual second after which there are no frames; None goes on until `aclose`.
        speed: virtual seconds per second; None does not wait.
        clock: where pacing takes its time from.

    Raises:
        ValueError: interval or speed is not above zero.
    """

    def __init__(
        self,
        simulation: Simulated,
        *,
        interval_s: float = 5.0,
        until_s: float | None = None,
        speed: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not interval_s > 0:
            raise ValueError(f"interval must be above zero, not {interval_s}")
        if speed is not None and not speed > 0:
            raise ValueError(f"speed must be above zero, not {speed}")
        self.interval_s = interval_s
        self._simulation, self._until_s, self._speed = simulation, until_s, speed
        self._clock = clock or WallClock()
        self._closed = False

    @property
    def cluster(self) -> Cluster:
        """Who is there now; a worker that joins later is in it from then on."""
        return self._simulation.cluster

    @property
    def notes(self) -> tuple[Note, ...]:
        """Nothing: pages speak for themselves."""
        return ()

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield frames in order of virtual time, the first after one interval."""
        began_s = self._clock.monotonic()
        for count in itertools.count(1):
            # Multiplied, not added up, so that the n-th frame is at the same second whatever the interval's rounding.
            to_s = count * self.interval_s
            if self._until_s is not None and to_s > self._until_s:
                return
            if self._speed is None:
                await asyncio.sleep(0)
            else:
                await self._clock.sleep(began_s + to_s / self._speed - self._clock.monotonic())
            if self._closed:
                return
            self._simulation.advance(to_s)
            yield self._simulation.frame()

    async def aclose(self) -> None:
        """Stop after the current frame."""
        self._closed = True
