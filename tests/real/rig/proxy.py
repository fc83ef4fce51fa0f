"""A small PD proxy for the rig: prefill leg, then decode leg, with switches that break the hand-over on purpose.

A stand-in for a production router: it speaks the same hand-over and exports the `pdops_router_*` families, and nothing
else. Start it as `python -m tests.real.rig.proxy --prefill prefill-0=URL --decode decode-0=URL`; it prints its address.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from pdops.clock import WallClock
from tests.real.rig.procs import LOOPBACK

CLOCK = WallClock()
BUCKETS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
)  # fmt: skip
OUTCOMES = ("ok", "error", "timeout", "aborted", "empty", "rejected")
ASK = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
LEG_TIMEOUT_S = 120.0
CLIENT_CLOSED = 499
"""Status a gateway logs for a client that went away; used for requests that the `abandon` switch drops."""

Mode = Literal["none", "hold", "abandon", "drop-params"]


@dataclass(slots=True)
class Fault:
    """What is broken on purpose; `fraction` (0-1) of requests are abandoned."""

    mode: Mode = "none"
    fraction: float = 1.0
    released: asyncio.Event = field(default_factory=asyncio.Event)


class Meters:
    """The router's families, every label value that can be known present from the start."""

    def __init__(self, prefills: list[str], decodes: list[str]) -> None:
        self.registry = CollectorRegistry()
        make: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("pdops_router_requests", "Requests by outcome.", ["outcome"], **make)
        self.ttft = Histogram("pdops_router_ttft_seconds", "Arrival to first token.", buckets=BUCKETS, **make)
        self.itl = Histogram("pdops_router_itl_seconds", "Gap between tokens.", buckets=BUCKETS, **make)
        self.whole = Histogram("pdops_router_request_seconds", "Arrival to end.", buckets=BUCKETS, **make)
        self.prefill = Histogram("pdops_router_prefill_seconds", "Prefill leg.", ["src"], buckets=BUCKETS, **make)
        self.handoff = Histogram(
            "pdops_router_handoff_seconds", "Prefill answer to first token of decode.", ["src", "dst"], buckets=BUCKETS, **make
        )
        self.pairs = Counter("pdops_router_pair_requests", "Requests by pair.", ["src", "dst", "outcome"], **make)
        self.inflight = Gauge("pdops_router_inflight_requests", "Requests under way.", **make)
        self.up = Gauge("pdops_router_worker_up", "Whether the last request to a worker got through.", ["worker"], **make)
        for outcome in OUTCOMES:
            self.requests.labels(outcome)
        for src in prefills:
            self.prefill.labels(src)
            for dst in decodes:
                self.handoff.labels(src, dst)
                for outcome in OUTCOMES:
                    self.pairs.labels(src, dst, outcome)
        for worker in (*prefills, *decodes):
            self.up.labels(worker).set(1)


class Failed(Exception):
    """A leg failed; carries the outcome and the status for the client."""

    def __init__(self, outcome: str, status: int, why: str) -> None:
        super().__init__(why)
        self.outcome, self.status = outcome, status


class Proxy:
    """Round-robin over the workers of each role."""

    def __init__(self, prefills: dict[str, str], decodes: dict[str, str]) -> None:
        self.meters = Meters(list(prefills), list(decodes))
        self.fault = Fault()
        self._prefills = itertools.cycle(prefills.items())
        self._decodes = itertools.cycle(decodes.items())
        self._random = random.Random(7)
        self._session: aiohttp.ClientSession | None = None

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=1 << 20)
        app.cleanup_ctx.append(self._open)
        for path in ("/v1/completions", "/v1/chat/completions"):
            app.router.add_post(path, self.serve)
        app.router.add_get("/metrics", self.page)
        app.router.add_post("/rig/fault", self.switch)
        return app

    async def _open(self, _app: web.Application) -> AsyncIterator[None]:
        timeout = aiohttp.ClientTimeout(total=None, sock_read=LEG_TIMEOUT_S, sock_connect=2.0)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as self._session:
            yield

    async def page(self, _request: web.Request) -> web.Response:
        """Serve the metrics."""
        return web.Response(body=generate_latest(self.meters.registry), content_type="text/plain")

    async def switch(self, request: web.Request) -> web.Response:
        """Set the fault; leaving `hold` lets the held requests go on."""
        wish = await request.json()
        old, self.fault = self.fault, Fault(wish["mode"], float(wish.get("fraction", 1.0)))
        old.released.set()
        return web.json_response({"mode": self.fault.mode})

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Take one request through both legs."""
        begin = CLOCK.monotonic()
        body = await request.json()
        (src, prefill), (dst, decode) = next(self._prefills), next(self._decodes)
        outcome = "aborted"
        self.meters.inflight.inc()
        try:
            params = await self._prefill(src, prefill, request.path, body)
            answered = CLOCK.monotonic()
            await self._between(params)
            outcome, response = await self._decode((src, dst), decode, request, body, params, begin, answered)
        except Failed as error:
            outcome = error.outcome
            response = web.json_response({"error": {"message": str(error)}}, status=error.status)
        finally:
            self.meters.inflight.dec()
            self.meters.requests.labels(outcome).inc()
            self.meters.pairs.labels(src, dst, outcome).inc()
            self.meters.whole.observe(CLOCK.monotonic() - begin)
        return response

    async def _prefill(self, src: str, url: str, path: str, body: dict[str, Any]) -> Any:
        begin = CLOCK.monotonic()
        leg = {k: v for k, v in body.items() if k not in ("stream_options", "max_completion_tokens")}
        leg |= {"stream": False, "max_tokens": 1, "kv_transfer_params": ASK}
        assert self._session is not None
        try:
            async with self._session.post(url + path, json=leg) as answer:
                content = await answer.json(content_type=None)
        except TimeoutError as error:
            raise Failed("timeout", 504, f"{src} did not answer in time") from error
        except (aiohttp.ClientError, ValueError) as error:
            self.meters.up.labels(src).set(0)
            raise Failed("error", 503, f"{src} cannot be reached: {error!r}") from error
        self.meters.up.labels(src).set(1)
        if answer.status != 200:
            raise Failed("error", answer.status, f"{src} answered {answer.status}: {str(content)[:200]}")
        self.meters.prefill.labels(src).observe(CLOCK.monotonic() - begin)
        return content.get("kv_transfer_params")

    async def _between(self, params: Any) -> None:
        fault = self.fault
        if fault.mode == "hold":
            await fault.released.wait()
        if fault.mode == "abandon" and self._random.random() < fault.fraction:
            raise Failed("aborted", CLIENT_CLOSED, "the client went away between the legs")
        assert params is None or isinstance(params, dict)

    async def _decode(
        self,
        pair: tuple[str, str],
        url: str,
        request: web.Request,
        body: dict[str, Any],
        params: Any,
        begin: float,
        answered: float,
    ) -> tuple[str, web.StreamResponse]:
        leg = dict(body)
        if self.fault.mode != "drop-params":
            leg["kv_transfer_params"] = params
        assert self._session is not None
        src, dst = pair
        tokens = 0
        broken = False
        last = 0.0
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            async with self._session.post(url + request.path, json=leg) as answer:
                if answer.status != 200:
                    text = (await answer.text())[:200]
                    raise Failed("error", answer.status, f"{dst} answered {answer.status}: {text}")
                self.meters.up.labels(dst).set(1)
                response.content_type = answer.content_type
                await response.prepare(request)
                async for line in answer.content:
                    told = _told(line)
                    broken = broken or told == "error"
                    if told == "token":
                        now = CLOCK.monotonic()
                        if tokens == 0:
                            self.meters.ttft.observe(now - begin)
                            self.meters.handoff.labels(src, dst).observe(now - answered)
                        else:
                            self.meters.itl.observe(now - last)
                        tokens, last = tokens + 1, now
                    await response.write(line)
        except TimeoutError as error:
            raise Failed("timeout", 504, f"{dst} did not answer in time") from error
        except ConnectionResetError:
            return "aborted", response
        except (aiohttp.ClientError, ValueError) as error:
            self.meters.up.labels(dst).set(0)
            if response.prepared:
                return "error", response
            raise Failed("error", 503, f"{dst} cannot be reached: {error!r}") from error
        await response.write_eof()
        return ("error" if broken else "ok" if tokens else "empty"), response


def _told(line: bytes) -> Literal["token", "error", "other"]:
    """Say what one line of a stream carries; an error can come with status 200."""
    if not line.startswith(b"data: {"):
        return "error" if line.startswith(b'{"error"') else "other"
    content = json.loads(line[6:])
    if content.get("error"):
        return "error"
    return "token" if any(_has_text(choice) for choice in content.get("choices", ())) else "other"


def _has_text(choice: dict[str, Any]) -> bool:
    return bool(choice.get("text") or choice.get("delta", {}).get("content") or choice.get("token_ids"))


def _named(text: str) -> tuple[str, str]:
    name, _, url = text.partition("=")
    if not url:
        raise argparse.ArgumentTypeError(f"expected NAME=URL, not {text!r}")
    return name, url.rstrip("/")


async def _run(proxy: Proxy) -> None:
    runner = web.AppRunner(proxy.app(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, LOOPBACK, 0)
    await site.start()
    port = runner.addresses[0][1]
    print(f"http://{LOOPBACK}:{port}", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prefill", action="append", type=_named, required=True, metavar="NAME=URL")
    parser.add_argument("--decode", action="append", type=_named, required=True, metavar="NAME=URL")
    given = parser.parse_args()
    asyncio.run(_run(Proxy(dict(given.prefill), dict(given.decode))))


if __name__ == "__main__":
    main()
