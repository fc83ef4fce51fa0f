"""Serve until a signal says to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from pdops.clock import WallClock
from pdops.router import state
from pdops.router.app import Router
from pdops.router.settings import RouterError, Settings, WorkerSpec
from pdops.router.workers import seeded
from pdops.telemetry.tracing import tracer

IDLE_S = 75.0
"""A connection without a whole head of a request is closed after this many seconds, at its start and between requests;
the usual keep-alive of proxies, which is 60 s, stays below it."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What to serve, and where; `drain_s` seconds are left to running requests after a signal."""

    settings: Settings
    given: tuple[WorkerSpec, ...]
    host: str
    port: int
    token: str | None
    state_file: Path | None
    otlp: str | None
    drain_s: float


def run(start: Start) -> signal.Signals:
    """Serve until SIGTERM or SIGINT; return which of them came first.

    Raises:
        RouterError: there are no workers, the state file or the address cannot be used.
        TelemetryError: the OTLP endpoint cannot be used.
    """
    known, removed = state.read(start.state_file) if start.state_file is not None else ([], set())
    registry = seeded(start.given, known, removed)
    if not registry.workers and start.token is None:
        hint = "give --prefill and --decode, or --admin-token-file to add workers later"
        raise RouterError("there are no workers", hint=hint)

    def persist() -> None:
        if start.state_file is not None:
            state.write(start.state_file, registry)

    persist()
    spans = tracer(start.otlp, "pdops-router")
    router = Router(start.settings, registry, WallClock(), spans, token=start.token, persist=persist)
    return asyncio.run(_serve(router, start))


def runner(router: Router) -> web.AppRunner:
    """Return what serves a router; a request ends with its client's connection."""
    return web.AppRunner(
        router.app(), handler_cancellation=True, access_log=None, shutdown_timeout=2.0, keepalive_timeout=IDLE_S
    )


async def _serve(router: Router, start: Start) -> signal.Signals:
    server = runner(router)
    await server.setup()
    try:
        try:
            await web.TCPSite(server, start.host, start.port).start()
        except (OSError, UnicodeError) as error:
            raise RouterError(
                "cannot serve",
                where=f"{start.host}:{start.port}",
                why=getattr(error, "strerror", None) or str(error),
                hint="choose another --port (0 takes a free one) or --host",
            ) from error
        stop = asyncio.Event()
        came: list[signal.Signals] = []

        def stopped(number: signal.Signals) -> None:
            came.append(number)
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped, number)
        host = f"[{start.host}]" if ":" in start.host else start.host
        sys.stdout.write(f"http://{host}:{server.addresses[0][1]}\n")
        sys.stdout.flush()
        await stop.wait()
        stop.clear()
        await _drain(router, start.drain_s, stop)
        return came[0]
    finally:
        await server.cleanup()


async def _drain(router: Router, limit_s: float, again: asyncio.Event) -> None:
    draining = asyncio.create_task(router.drain(limit_s))
    second = asyncio.create_task(again.wait())
    await asyncio.wait([draining, second], return_when=asyncio.FIRST_COMPLETED)
    for task in (draining, second):
        task.cancel()
    if left := router.handler.inflight:
        log.warning("%d requests are cut off", left)
