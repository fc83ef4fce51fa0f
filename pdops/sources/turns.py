"""Let a bounded number of requests run at once without letting slow ones take all the places."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

AT_ONCE = 128
HOLD_S = 0.5


class Turns:
    """First come, first served places.

    Without a bound, a machine that is short of CPU begins every request, finishes none in time and throws the work
    away. A request that runs for longer than `hold_s` seconds waits for its peer, costs nothing here, and gives its
    place on.
    """

    def __init__(self, at_once: int = AT_ONCE, hold_s: float = HOLD_S) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._hold_s = hold_s

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a place and hold it until the end of the block or of the hold time."""
        await self._free.acquire()
        held = True

        def give_on() -> None:
            nonlocal held
            if held:
                held = False
                self._free.release()

        timer = asyncio.get_running_loop().call_later(self._hold_s, give_on)
        try:
            yield
        finally:
            timer.cancel()
            give_on()
