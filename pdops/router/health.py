"""Ask every worker whether it answers, again and again."""

from __future__ import annotations

import asyncio
import logging

import aiohttp

from pdops.clock import Clock
from pdops.router.workers import Registry, Worker

EVERY_S = 2.0
TIMEOUT_S = 2.0
LATE_ANSWERS = 2
"""So many late answers in a row count as down; one on a busy machine does not."""
log = logging.getLogger(__name__)


class Health:
    """Keeps `up` of every worker true.

    Args:
        registry: the workers.
        session: for the requests.
        clock: for the pauses.
        every_s: seconds between two looks.
    """

    def __init__(self, registry: Registry, session: aiohttp.ClientSession, clock: Clock, every_s: float) -> None:
        self._registry, self._session, self._clock, self._every_s = registry, session, clock, every_s

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(self._every_s)

    async def look(self) -> None:
        """Ask all workers once."""
        await asyncio.gather(*(self.look_at(w) for w in list(self._registry.workers.values())))

    async def look_at(self, worker: Worker) -> None:
        """Ask one worker once."""
        before = worker.up
        limit = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            # Whoever a worker points to is no worker of ours.
            async with self._session.get(f"{worker.spec.url}/health", timeout=limit, allow_redirects=False) as answer:
                up, why, worker.late = answer.status == 200, f"health answers {answer.status}", 0
        except TimeoutError:
            worker.late += 1
            up = worker.up is True and worker.late < LATE_ANSWERS
            why = f"no answer within {TIMEOUT_S:g} s, {worker.late} times"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # A host name no resolver can write is a ValueError; a look that raises would end the watch of all workers.
            up, why = False, str(error) or type(error).__name__
        self._registry.mark(worker, up=up, why=why)
        if before is not up:
            log.warning("worker %s is %s: %s", worker.id, "up" if up else "down", why)
