"""Which workers the proxy has, which of them answer, and whose turn it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

import aiohttp

from tests.real.rig.procs import CLOCK

HEALTH_EVERY_S = 2.0
HEALTH_TIMEOUT_S = 2.0
LATE_ANSWERS = 2
"""So many late answers in a row count as down; one on a busy machine does not."""


class Workers:
    """Workers of both roles, asked for their health every two seconds.

    Args:
        prefills: id to URL.
        decodes: id to URL.
        tell: called with id and whether it is up, after each look.
    """

    def __init__(self, prefills: dict[str, str], decodes: dict[str, str], tell: Callable[[str, bool], None]) -> None:
        self.prefills, self.decodes, self._tell = prefills, decodes, tell
        self.up = dict.fromkeys((*prefills, *decodes), False)
        self._late = dict.fromkeys(self.up, 0)
        self._turn = count()

    def pick(self) -> tuple[str, str]:
        """Return the next prefill and decode worker, in turn among those that are up, or among all when none is."""
        turn = next(self._turn)
        return self._nth(self.prefills, turn), self._nth(self.decodes, turn)

    async def watch(self, session: aiohttp.ClientSession) -> None:
        """Look again and again until cancelled."""
        while True:
            await CLOCK.sleep(HEALTH_EVERY_S)
            await self.look(session)

    async def look(self, session: aiohttp.ClientSession) -> None:
        """Ask every worker once."""
        workers = {**self.prefills, **self.decodes}
        await asyncio.gather(*(self._look_at(session, name, url) for name, url in workers.items()))

    async def _look_at(self, session: aiohttp.ClientSession, name: str, url: str) -> None:
        limit = aiohttp.ClientTimeout(total=HEALTH_TIMEOUT_S)
        try:
            async with session.get(f"{url}/health", timeout=limit) as answer:
                up, self._late[name] = answer.status == 200, 0
        except TimeoutError:
            self._late[name] += 1
            up = self.up[name] and self._late[name] < LATE_ANSWERS
        except aiohttp.ClientError:
            up = False
        self.up[name] = up
        self._tell(name, up)

    def _nth(self, workers: dict[str, str], turn: int) -> str:
        names = [name for name in workers if self.up[name]] or list(workers)
        return names[turn % len(names)]
