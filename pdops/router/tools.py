"""What every request works with."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from pdops.clock import Clock
from pdops.router.drills import Drill
from pdops.router.estimate import Estimator
from pdops.router.legs import Engines
from pdops.router.metrics import Metrics
from pdops.router.queue import Queue
from pdops.router.settings import Settings


@dataclass(slots=True)
class Background:
    """Work that outlives its request: it is finished or cancelled when the router stops."""

    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let it run."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def close(self, timeout_s: float) -> None:
        """Wait for what runs, and cancel what takes longer than that many seconds."""
        if self.tasks:
            _, late = await asyncio.wait(self.tasks, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Tools:
    """What every exchange works with."""

    queue: Queue
    engines: Engines
    estimator: Estimator
    metrics: Metrics
    drill: Drill
    background: Background
    clock: Clock

    @property
    def settings(self) -> Settings:
        """Limits and choices as they are now."""
        return self.queue.settings
