"""Watch a cluster and answer scrapes: the page is made of what was last seen, so a slow engine never slows a scrape."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from pdops.errors import UsageError
from pdops.grafana.rules import pages
from pdops.model.frame import Probe
from pdops.sources.base import Source
from pdops_exporters.page import CONTENT_TYPE, write
from pdops_exporters.watched import Watched

MAX_WAITING = 4
"""Scrapes answered at once; more get 503, since each costs time on a shared core."""


@contextlib.asynccontextmanager
async def watching(
    source: Source, watched: Watched, probes: Callable[[], tuple[Probe, ...]] = tuple
) -> AsyncIterator[asyncio.Task[None]]:
    """Take in the source's frames in the background until the block ends; the task ends early when the source does.

    Args:
        source: gives the frames.
        watched: takes them.
        probes: gives what was probed since the last frame.
    """

    async def follow() -> None:
        async for frame in source.frames():
            if source.cluster is not watched.cluster:
                watched.follow(source.cluster)
            watched.add(replace(frame, probes=(*frame.probes, *probes())))

    task = asyncio.create_task(follow(), name="exporter-frames")
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await source.aclose()


def app(registry: CollectorRegistry, watched: Watched, follow: asyncio.Task[None]) -> web.Application:
    """Return the web application: `/metrics`, `/healthz`, `/ready`, and the pages of alerts under `/explain/`."""
    waiting = asyncio.Semaphore(MAX_WAITING)

    async def metrics(request: web.Request) -> web.Response:
        if waiting.locked():
            raise web.HTTPServiceUnavailable(text="too many scrapes at once\n", headers={"Retry-After": "1"})
        async with waiting:
            encode, kind = _encoder(request.headers.get("Accept", ""))
            body = await asyncio.to_thread(encode, registry)
        return web.Response(body=body, headers={"Content-Type": kind})

    async def healthz(_: web.Request) -> web.Response:
        if follow.done():
            return web.Response(status=503, text="the source has ended\n")
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        if watched.snapshot() is None:
            return web.Response(status=503, text="nothing was read yet\n")
        return web.Response(text="ok\n")

    async def explain(request: web.Request) -> web.Response:
        page = pages.find(request.match_info["alert"])
        if page is None:
            return web.Response(status=404, text="no alert of that name; `pdops explain --list` lists them all\n")
        return web.Response(text=page.text)

    made = web.Application(client_max_size=1024)
    made.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/ready", ready)])
    made.add_routes([web.get("/explain/{alert}", explain)])
    return made


def _encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """Return what writes the page, and its content type: text unless somebody takes nothing but OpenMetrics."""
    if "application/openmetrics-text" in accept and "text/plain" not in accept and "*/*" not in accept:
        return choose_encoder(accept)
    return write, CONTENT_TYPE


async def listen(application: web.Application, host: str, port: int) -> web.AppRunner:
    """Start answering and return the runner, whose `addresses` tell the port.

    Raises:
        UsageError: the address cannot be listened on.
    """
    runner = web.AppRunner(application, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise UsageError(
            "the exporter cannot listen",
            where=f"{host}:{port}",
            why=error.strerror or str(error),
            hint="choose another --port, or stop what uses it",
        ) from error
    return runner
