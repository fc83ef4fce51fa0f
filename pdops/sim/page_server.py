"""The pages of a simulation on loopback, one port a page, as the programs would serve them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from pdops.errors import UsageError
from pdops.sim.instruments import Instruments

HOST = "127.0.0.1"
_LOOK_S = 0.05
"""How often a process that hangs looks whether it may go on, in seconds."""
_TEXT = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
_VERSION = "0.32.0"
"""Of the recorded vLLM whose pages are shown."""


@dataclass(slots=True)
class _Door:
    """Where one page is served; `site` is None while its process is down."""

    name: str
    port: int
    site: web.SockSite | None = None


class PageServer:
    """Serves the pages of a simulation; a process that is down refuses connections, one that hangs takes and keeps them.

    Args:
        instruments: the pages by name; those that join are served from the next `follow` on.
        model: the model that engines say they serve.
        versions: gives the version an engine says it has by worker; the one whose pages are shown where it gives none.
        ports: port by name; a free one where none is given.
        clock: turns the simulation's Unix seconds into the reader's.
    """

    def __init__(
        self,
        instruments: Mapping[str, Instruments],
        *,
        model: str,
        versions: Callable[[str], str | None] = lambda _worker: None,
        ports: Mapping[str, int] | None = None,
        clock: Callable[[float], float] | None = None,
    ) -> None:
        self._instruments, self._model, self._ports, self._clock = instruments, model, dict(ports or {}), clock
        self._versions = versions
        self._doors: dict[str, _Door] = {}
        self._by_port: dict[int, str] = {}
        app = web.Application()
        # Engines answer with and without the last slash.
        for path in ("/metrics", "/metrics/"):
            app.router.add_get(path, self._metrics)
        app.router.add_get("/health", self._health)
        app.router.add_get("/ready", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/{rest:.*}", self._no_answers)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.5)

    async def open(self) -> None:
        """Begin to serve.

        Raises:
            UsageError: a port cannot be used.
        """
        await self._runner.setup()
        await self.follow()

    async def follow(self) -> None:
        """Open and close ports as processes come and go."""
        # Those whose port was asked for come first: the system might give it to one that takes any.
        for name in sorted(self._instruments, key=lambda n: n not in self._ports):
            instruments = self._instruments[name]
            door = self._doors.get(name)
            down = instruments.error is not None and not instruments.silent
            if door is None:
                # The port is taken even by a process that is down, so that its address is known.
                door = self._doors[name] = await self._opened(_Door(name, self._ports.get(name, 0)))
                self._by_port[door.port] = name
            if down:
                await self._close(door)
            elif door.site is None:
                await self._opened(door)
        for name in self._doors.keys() - self._instruments.keys():
            await self._close(self._doors[name])

    def url(self, name: str) -> str:
        """Return where a page's program serves."""
        return f"http://{HOST}:{self._doors[name].port}"

    async def aclose(self) -> None:
        """Stop serving; may be called twice."""
        await self._runner.cleanup()

    async def _close(self, door: _Door) -> None:
        if door.site is not None:
            site, door.site = door.site, None
            await site.stop()

    async def _opened(self, door: _Door) -> _Door:
        try:
            listening = socket.create_server((HOST, door.port))
        except OSError as error:
            raise UsageError(
                "cannot serve a simulated page",
                where=f"{HOST}:{door.port}",
                why=f"{door.name}: {error.strerror or error}",
                hint="leave its port out to take a free one, or stop what listens there",
            ) from error
        door.port = int(listening.getsockname()[1])
        door.site = web.SockSite(self._runner, listening)
        await door.site.start()
        return door

    async def _asked(self, request: web.Request) -> Instruments:
        """Return whose port was asked, once its process answers."""
        transport = request.transport
        name = None if transport is None else self._by_port.get(transport.get_extra_info("sockname")[1])
        instruments = None if name is None else self._instruments.get(name)
        if transport is None or instruments is None:
            raise web.HTTPNotFound
        while instruments.error is not None and instruments.silent:
            await asyncio.sleep(_LOOK_S)
        if instruments.error is not None:
            # A connection that was kept open dies with its process.
            transport.abort()
            raise web.HTTPServiceUnavailable
        return instruments

    async def _metrics(self, request: web.Request) -> web.Response:
        instruments = await self._asked(request)
        # vLLM filters by name behind the slash only.
        filtered = instruments.engine == "vllm" and request.path.endswith("/")
        names = frozenset(request.query.getall("name[]", [])) if filtered else frozenset()
        return web.Response(text=instruments.page(names=names, clock=self._clock), headers=_TEXT)

    async def _health(self, request: web.Request) -> web.Response:
        await self._asked(request)
        return web.json_response({"status": "ok", "ready": True, "simulated": True})

    async def _version(self, request: web.Request) -> web.Response:
        instruments = await self._asked(request)
        if instruments.engine != "vllm":
            raise web.HTTPNotFound
        return web.json_response({"version": self._versions(instruments.worker) or _VERSION})

    async def _models(self, request: web.Request) -> web.Response:
        await self._asked(request)
        return web.json_response({"object": "list", "data": [{"id": self._model, "object": "model"}]})

    async def _no_answers(self, request: web.Request) -> web.Response:
        with contextlib.suppress(ConnectionResetError):
            await self._asked(request)
        text = "this cluster is simulated: it shows metrics and answers no requests"
        return web.json_response({"error": {"message": text, "type": "not_implemented", "code": 501}}, status=501)
