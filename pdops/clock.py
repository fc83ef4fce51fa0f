"""The only place that reads time.

Wall time is Unix seconds; monotonic time is for durations, since wall clocks step backwards.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> float:
        """Return Unix time in seconds."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never run backwards; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for a duration in seconds."""
        ...


class WallClock:
    """The machine's own clocks."""

    def now(self) -> float:
        """Return Unix time in seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return the machine's monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running event loop."""
        await asyncio.sleep(max(0.0, seconds))


class VirtualClock:
    """A clock that moves when it is told to, or when somebody sleeps on it."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now = start_s
        self._monotonic = 0.0

    def now(self) -> float:
        """Return the virtual Unix time in seconds."""
        return self._now

    def monotonic(self) -> float:
        """Return virtual seconds since the clock was made."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Move both clocks forward by a non-negative duration in seconds."""
        self._now += seconds
        self._monotonic += seconds

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock alone, as a time server may; negative values go back."""
        self._now += seconds

    async def sleep(self, seconds: float) -> None:
        """Advance at once and let other tasks run."""
        self.advance(max(0.0, seconds))
        await asyncio.sleep(0)
