"""The application: what it answers, and what lives as long as it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

from pdops.clock import Clock
from pdops.router.admin import Admin
from pdops.router.drills import Drill
from pdops.router.estimate import Estimator
from pdops.router.handler import PATHS, Handler, error_response, leg_headers
from pdops.router.health import EVERY_S, Health
from pdops.router.legs import Ended, Engines
from pdops.router.metrics import Metrics
from pdops.router.models import models
from pdops.router.policies import policy
from pdops.router.queue import Queue
from pdops.router.ready import ready
from pdops.router.settings import MAX_BODY_BYTES, Settings
from pdops.router.tools import Background, Tools
from pdops.router.workers import Registry
from pdops.telemetry.tracing import Tracer

_CLOSE_S = 6.0


class Router:
    """Everything of one router.

    Args:
        settings: limits and choices.
        registry: the workers.
        clock: for durations.
        tracer: for spans.
        token: what the admin API asks for; None switches it off.
        persist: called after each change a person made to the workers; raises RouterError when it cannot.
        health_every_s: seconds between two looks at a worker.
    """

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        clock: Clock,
        tracer: Tracer,
        *,
        token: str | None = None,
        persist: Callable[[], None] = lambda: None,
        health_every_s: float = EVERY_S,
    ) -> None:
        self.registry, self._clock, self._tracer = registry, clock, tracer
        self._health_every_s = health_every_s
        estimator, self.drill = Estimator(), Drill()
        self.metrics = Metrics(registry)
        self.queue = Queue(registry, policy(settings.policy, settings.zone), settings, estimator, clock)
        self.queue.watchers.append(self.metrics.depth.set)
        self.engines, self.background = Engines(registry), Background()
        self.tools = Tools(self.queue, self.engines, estimator, self.metrics, self.drill, self.background, clock)
        self.admin = Admin(self, registry, self.drill, token, persist)
        self.handler = Handler(self.tools, tracer)

    @property
    def settings(self) -> Settings:
        """Limits and choices as they are now."""
        return self.queue.settings

    def change(self, settings: Settings) -> None:
        """Let other limits and choices hold from the next request on."""
        if settings.policy != self.settings.policy:
            self.queue.policy = policy(settings.policy, settings.zone)
        self.queue.settings = settings
        self.queue.pump()

    def app(self) -> web.Application:
        """Return the aiohttp application; serve it with `handler_cancellation`, or KV of clients that left stays held."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_plain_errors])
        app.cleanup_ctx.append(self._lifetime)
        for path in PATHS:
            app.router.add_post(path, self.handler.handle)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health_page)
        app.router.add_get("/ready", self._ready)
        app.router.add_get("/metrics", self._metrics)
        self.admin.add_to(app)
        return app

    async def drain(self, timeout_s: float) -> int:
        """Take no more requests and wait for those here; return how many are left after that many seconds."""
        self.queue.draining = True
        waited = 0.0
        while self.handler.inflight and waited < timeout_s:
            await self._clock.sleep(0.1)
            waited += 0.1
        return self.handler.inflight

    async def _lifetime(self, _app: web.Application) -> AsyncIterator[None]:
        await self.engines.open()
        health = Health(self.registry, self.engines.session, self._clock, self._health_every_s)
        self.admin.look_at = health.look_at
        await health.look()
        watcher = asyncio.create_task(health.watch())
        yield
        self.drill.release()
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
        await self.background.close(_CLOSE_S)
        await self.engines.close()
        await asyncio.to_thread(self._tracer.close)

    async def _metrics(self, _request: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=await self.metrics.page(), headers=headers)

    async def _health_page(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "alive"})

    async def _ready(self, _request: web.Request) -> web.Response:
        content = ready(self.registry, self.settings, draining=self.queue.draining, queue_depth=self.queue.depth)
        return web.json_response(content, status=200 if content["ready"] else 503)

    async def _models(self, request: web.Request) -> web.Response:
        able = sorted((w for w in self.registry.workers.values() if w.up), key=lambda w: w.spec.role)
        for worker in able:
            try:
                found = await models(self.engines.session, worker, leg_headers(request))
            except Ended as end:
                return error_response(end.status, end.message, retry_after_s=end.retry_after_s)
            if found is not None:
                return web.json_response(found)
        return error_response(503, "no worker tells its models", retry_after_s=5)


@web.middleware
async def _plain_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer in JSON where the framework would answer in plain text."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return error_response(error.status, f"{request.method} {request.path}: {error.reason}")
