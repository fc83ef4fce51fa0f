"""Listen on an address."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http import HttpProcessingError

from pdops.errors import UsageError
from pdops.respond.alerts import short

_LOG = logging.getLogger("pdops.respond.http")


def _in_a_line(record: logging.LogRecord) -> bool:
    """Let what a client did be a line; a traceback is for what is wrong here."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, web.RequestPayloadError | HttpProcessingError | ConnectionError):
        record.msg, record.args = "a request could not be read to its end: %s", (short(str(error)),)
        record.exc_info = None
    return True


_LOG.addFilter(_in_a_line)


async def listen(application: web.Application, host: str, port: int) -> web.AppRunner:
    """Start answering and return the runner, whose `addresses` tell the port.

    Raises:
        UsageError: the address cannot be listened on.
    """
    # Bodies stay packed: aiohttp answers a coding that it cannot undo by itself, before the application is asked.
    runner = web.AppRunner(
        application, access_log=None, logger=_LOG, handle_signals=False, shutdown_timeout=5.0, auto_decompress=False
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise UsageError(
            "alerts cannot be listened for", where=f"{host}:{port}", why=error.strerror or str(error),
            hint="choose another --port, or stop what uses it",
        ) from error  # fmt: skip
    return runner
