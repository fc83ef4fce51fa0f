"""Listen on an address."""

from __future__ import annotations

from aiohttp import web

from pdops.errors import UsageError


async def listen(application: web.Application, host: str, port: int) -> web.AppRunner:
    """Start answering and return the runner, whose `addresses` tell the port.

    Raises:
        UsageError: the address cannot be listened on.
    """
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=5.0)
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
