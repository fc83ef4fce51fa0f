"""End in order when told to, so that programs that were started end as well."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def ended_by_sigterm() -> AsyncIterator[None]:
    """Treat SIGTERM like Ctrl-C while the block of the running task runs.

    Raises:
        KeyboardInterrupt: the signal came, and the block has been left in order.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    told = False

    def stop() -> None:
        nonlocal told
        told = True
        if task is not None:
            task.cancel()

    loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        yield
    except asyncio.CancelledError:
        if told:
            raise KeyboardInterrupt from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
