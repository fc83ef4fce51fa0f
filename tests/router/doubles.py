"""Doubles of engines, and a router before them. No engine runs here: the doubles answer as vLLM 0.32 with NIXL does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from pdops.clock import WallClock
from pdops.model.cluster import Role
from pdops.router.app import Router
from pdops.router.settings import Settings, WorkerSpec
from pdops.router.workers import Registry, seeded
from pdops.telemetry.tracing import NoTracer, Tracer

Client = TestClient[web.Request, web.Application]
TOKEN = "correct-horse"
USAGE = json.dumps({"choices": [], "usage": {"completion_tokens": 5, "prompt_tokens": 70}})
PATIENCE_S = 20.0
"""The longest a test waits for a condition; none depends on how long it takes."""


def token(text: str, **more: object) -> str:
    """Return an event of a completion stream."""
    return json.dumps({"choices": [{"text": text, "finish_reason": None, **more}]})


@dataclass(eq=False)
class EngineDouble:
    """A double of an engine, of either role.

    `held` stands for prefill's memory: a prefill adds a request id, a pull or a release takes it away.
    """

    held: set[str] = field(default_factory=set)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    releases: list[str] = field(default_factory=list)
    status: int = 200
    health: int = 200
    error: object = field(default_factory=lambda: {"error": {"message": "no"}})
    address: bool = True
    script: list[str] = field(default_factory=lambda: [token("a"), token("b"), token("cde"), USAGE, "[DONE]"])
    whole: dict[str, Any] = field(
        default_factory=lambda: {
            "choices": [{"text": "abc", "finish_reason": "length"}],
            "usage": {"completion_tokens": 3, "prompt_tokens": 70},
        }
    )
    delay_s: float = 0.0
    gate: asyncio.Event | None = None
    before_answer: asyncio.Event | None = None
    aborted: int = 0
    running: int = 0
    peak: int = 0

    def app(self) -> web.Application:
        app = web.Application()
        for path in ("/v1/completions", "/v1/chat/completions"):
            app.router.add_post(path, self._complete)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        return app

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=self.health)

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "tiny"}]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        params = body.get("kv_transfer_params") or {}
        if body.get("model") == "pdops-release-kv":
            self.releases.append(params["remote_request_id"])
            self.held.discard(params["remote_request_id"])
            return web.json_response({"error": {"message": "no such model"}}, status=404)
        self.bodies.append(body)
        self.headers.append({k.lower(): v for k, v in request.headers.items()})
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            return await self._answer(request, body, params)
        except asyncio.CancelledError:
            self.aborted += 1
            self.held.discard(params.get("remote_request_id", ""))
            raise
        finally:
            self.running -= 1

    async def _answer(self, request: web.Request, body: dict[str, Any], params: dict[str, Any]) -> web.StreamResponse:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.before_answer is not None:
            await self.before_answer.wait()
        if self.status != 200:
            return web.json_response(self.error, status=self.status)
        if params.get("do_remote_decode"):
            answer: dict[str, Any] = {**self.whole}
            if self.address:
                name = f"req-{len(self.bodies)}"
                self.held.add(name)
                answer["kv_transfer_params"] = {
                    "do_remote_prefill": True,
                    "remote_engine_id": "prefill-0",
                    "remote_request_id": name,
                    "remote_block_ids": [[1, 2, 3]],
                }
            return web.json_response(answer)
        self.held.discard(params.get("remote_request_id", ""))
        if not body.get("stream"):
            return web.json_response(self.whole)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number, event in enumerate(self.script):
            if number == 1 and self.gate is not None:
                await self.gate.wait()
            await response.write(f"data: {event}\n\n".encode())
        return response


@dataclass(eq=False)
class Bench:
    """A router before doubles; `client` talks to the router."""

    router: Router
    registry: Registry
    client: Client
    prefills: dict[str, EngineDouble]
    decodes: dict[str, EngineDouble]
    servers: dict[str, TestServer]

    @property
    def prefill(self) -> EngineDouble:
        return self.prefills["prefill-0"]

    @property
    def decode(self) -> EngineDouble:
        return self.decodes["decode-0"]

    async def ask(self, *, stream: bool = True, chat: bool = False, **more: object) -> tuple[int, str]:
        what: dict[str, object] = {"messages": [{"role": "user", "content": "x"}]} if chat else {"prompt": "x"}
        body = {**what, "max_tokens": 3, "min_tokens": 3, "stream": stream, **more}
        path = "/v1/chat/completions" if chat else "/v1/completions"
        async with self.client.post(path, json=body) as answer:
            return answer.status, await answer.text()

    async def admin(self, method: str, path: str, body: object = None, bearer: str = TOKEN) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        async with self.client.request(method, f"/admin{path}", json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def value(self, name: str, **labels: str) -> float | None:
        """Return the sum of a family's samples with these labels, None when there are none."""
        async with self.client.get("/metrics") as answer:
            page = await answer.text()
        found = [
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == f"pdops_router_{name}" and labels.items() <= sample.labels.items()
        ]
        return sum(found) if found else None

    async def outcomes(self) -> dict[str, float]:
        counts = {n: await self.value("requests_total", outcome=n) for n in _OUTCOMES}
        return {n: v for n, v in counts.items() if v}

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.01)


_OUTCOMES = ("ok", "error", "timeout", "aborted", "empty", "rejected")


@contextlib.asynccontextmanager
async def bench(
    settings: Settings | None = None,
    *,
    prefills: int = 1,
    decodes: int = 1,
    tracer: Tracer | None = None,
    persist: Any = lambda: None,
) -> AsyncIterator[Bench]:
    """Serve a router and its doubles on loopback ports the system gives out."""
    async with contextlib.AsyncExitStack() as stack:
        kv: set[str] = set()
        engines = {
            Role.PREFILL: {f"prefill-{n}": EngineDouble(kv) for n in range(prefills)},
            Role.DECODE: {f"decode-{n}": EngineDouble(kv) for n in range(decodes)},
        }
        specs, servers = [], {}
        for role, doubles in engines.items():
            for name, double in doubles.items():
                server = TestServer(double.app())
                await server.start_server()
                stack.push_async_callback(server.close)
                servers[name] = server
                specs.append(WorkerSpec(id=name, role=role, url=str(server.make_url("")).rstrip("/")))
        registry = seeded(specs)
        router = Router(
            settings or Settings(allow_drills=True),
            registry,
            WallClock(),
            tracer or NoTracer(),
            token=TOKEN,
            persist=persist,
            health_every_s=0.05,
        )
        client = await stack.enter_async_context(TestClient(TestServer(router.app())))
        yield Bench(router, registry, client, engines[Role.PREFILL], engines[Role.DECODE], servers)
