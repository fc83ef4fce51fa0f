"""A small prefill/decode proxy with switches for what real routers do wrong.

    python -m tests.real.rig.proxy --prefill prefill-0=URL --decode decode-0=URL

Prints its URL once it serves. Each request goes to a prefill worker for one token, and with the KV address it answers
to a decode worker, whose stream is passed on. POST /rig/fault {"mode": "none|hold|abandon|drop-params"} sets a fault; see
`faults.py` for what each does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from aiohttp import web

from tests.real.rig.faults import Fault
from tests.real.rig.procs import CLOCK, LOOPBACK
from tests.real.rig.proxy_metrics import Outcome, ProxyMetrics
from tests.real.rig.stream import StreamReader, error_of
from tests.real.rig.workers import Workers

PATHS = ("/v1/completions", "/v1/chat/completions")
GONE = 499
_ASK_FOR_KV = {"do_remote_decode": True, "do_remote_prefill": False}


class Ended(Exception):  # noqa: N818  it ends a request, not always badly
    """A request ends here, before anything was streamed."""

    def __init__(self, outcome: Outcome, status: int, message: str) -> None:
        super().__init__(message)
        self.outcome, self.status, self.message = outcome, status, message

    def response(self) -> web.Response:
        """Return the answer for the client."""
        return web.json_response({"error": {"message": self.message, "code": self.status}}, status=self.status)


class Proxy:
    """The application: workers by id, metrics, the fault.

    Args:
        prefills: prefill workers, id to URL.
        decodes: decode workers, id to URL.
        timeout_s: the longest a request may take.
        max_inflight: requests above this many at once are rejected.
    """

    def __init__(
        self, prefills: dict[str, str], decodes: dict[str, str], *, timeout_s: float, max_inflight: int
    ) -> None:
        self._timeout_s, self._max_inflight = timeout_s, max_inflight
        self.metrics = ProxyMetrics(prefills, decodes)
        self.fault = Fault()
        self.workers = Workers(prefills, decodes, lambda name, up: self.metrics.up.labels(name).set(up))
        self._inflight = 0
        self._session: aiohttp.ClientSession | None = None

    def app(self) -> web.Application:
        """Return the aiohttp application."""
        app = web.Application(client_max_size=16 << 20)
        app.cleanup_ctx.append(self._lifetime)
        for path in PATHS:
            app.router.add_post(path, self._handle)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/health", self._health)
        app.router.add_get("/rig/fault", self._show_fault)
        app.router.add_post("/rig/fault", self._set_fault)
        return app

    async def _lifetime(self, _app: web.Application) -> AsyncIterator[None]:
        # Engines close idle connections after seconds; a new one each time cannot meet that race.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=None)
        ) as self._session:
            await self.workers.look(self._session)
            watcher = asyncio.create_task(self.workers.watch(self._session))
            yield
            self.fault.release()
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=self.metrics.page(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def _health(self, _request: web.Request) -> web.Response:
        return web.json_response({"workers": self.workers.up})

    async def _show_fault(self, _request: web.Request) -> web.Response:
        return web.json_response(self.fault.shown())

    async def _set_fault(self, request: web.Request) -> web.Response:
        try:
            self.fault.switch(await request.json())
        except ValueError as error:
            return web.json_response({"error": {"message": str(error)}}, status=400)
        return web.json_response(self.fault.shown())

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        begin = CLOCK.monotonic()
        if self._inflight >= self._max_inflight:
            self.metrics.requests.labels(Outcome.REJECTED).inc()
            return Ended(Outcome.REJECTED, 503, f"{self._inflight} requests in flight").response()
        src, dst = self.workers.pick()
        outcome = Outcome.ABORTED  # what it is when the client goes away and this task is cancelled
        self._count_inflight(+1)
        try:
            outcome, response = await self._serve(request, src, dst, begin)
            return response
        except Ended as end:
            outcome = end.outcome
            return end.response()
        finally:
            self._count_inflight(-1)
            self.metrics.requests.labels(outcome).inc()
            self.metrics.pairs.labels(src, dst, outcome).inc()
            if outcome is Outcome.OK:
                self.metrics.request.observe(CLOCK.monotonic() - begin)

    async def _serve(
        self, request: web.Request, src: str, dst: str, begin: float
    ) -> tuple[Outcome, web.StreamResponse]:
        try:
            body = await request.json()
        except ValueError as error:
            raise Ended(Outcome.ERROR, 400, f"not JSON: {error}") from error
        if not isinstance(body, dict):
            raise Ended(Outcome.ERROR, 400, "expected a JSON object")
        headers = {"X-Request-Id": request.headers.get("X-Request-Id", uuid.uuid4().hex)}
        streamed: list[web.StreamResponse] = []
        try:
            async with asyncio.timeout(self._timeout_s):
                address = await self._prefill(request.path, body, headers, src)
                answered = CLOCK.monotonic()
                await self.fault.hold()
                if self.fault.abandons():
                    raise Ended(Outcome.ABORTED, GONE, "given up after prefill")
                if self.fault.mode != "drop-params":
                    body = {**body, "kv_transfer_params": address}
                return await self._decode(request, body, headers, (src, dst), (begin, answered), streamed)
        except TimeoutError:
            message = f"no complete answer within {self._timeout_s:.0f} s"
            if not streamed:
                raise Ended(Outcome.TIMEOUT, 504, message) from None
            await _end_with_error(streamed[0], message)
            return Outcome.TIMEOUT, streamed[0]

    async def _prefill(self, path: str, body: dict[str, Any], headers: dict[str, str], src: str) -> Any:
        dropped = ("stream_options", "min_tokens")
        leg = {k: v for k, v in body.items() if k not in dropped}
        leg |= {"stream": False, "max_tokens": 1, "kv_transfer_params": _ASK_FOR_KV}
        if "max_completion_tokens" in leg:
            leg["max_completion_tokens"] = 1
        begin = CLOCK.monotonic()
        answer = await self._whole(f"{self.workers.prefills[src]}{path}", leg, headers, f"prefill {src}")
        self.metrics.prefill.labels(src).observe(CLOCK.monotonic() - begin)
        return answer.get("kv_transfer_params")

    async def _decode(
        self,
        request: web.Request,
        body: dict[str, Any],
        headers: dict[str, str],
        pair: tuple[str, str],
        times: tuple[float, float],
        streamed: list[web.StreamResponse],
    ) -> tuple[Outcome, web.StreamResponse]:
        url, who = f"{self.workers.decodes[pair[1]]}{request.path}", f"decode {pair[1]}"
        if not body.get("stream"):
            content = await self._whole(url, body, headers, who)
            empty = content.get("usage", {}).get("completion_tokens") == 0
            return Outcome.EMPTY if empty else Outcome.OK, web.json_response(content)
        assert self._session is not None
        try:
            async with self._session.post(url, json=body, headers=headers) as answer:
                if answer.status != 200:
                    raise _refused(answer.status, await answer.text(), who)
                response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                await response.prepare(request)
                streamed.append(response)
                return await self._pass_on(answer, response, pair, times), response
        except aiohttp.ClientError as error:
            if not streamed:
                raise Ended(Outcome.ERROR, 502, f"{who}: {error!r}") from error
            if isinstance(error, aiohttp.ClientConnectionResetError):
                return Outcome.ABORTED, streamed[0]
            await _end_with_error(streamed[0], f"{who}: {error!r}")
            return Outcome.ERROR, streamed[0]

    async def _pass_on(
        self,
        answer: aiohttp.ClientResponse,
        response: web.StreamResponse,
        pair: tuple[str, str],
        times: tuple[float, float],
    ) -> Outcome:
        reader, last = StreamReader(), 0.0
        async for line in answer.content:
            if reader.feed(line):
                now = CLOCK.monotonic()
                if reader.pieces == 1:
                    self.metrics.ttft.observe(now - times[0])
                    self.metrics.handoff.labels(*pair).observe(now - times[1])
                else:
                    self.metrics.itl.observe(now - last)
                last = now
            if line.strip():
                await response.write(line.rstrip(b"\r\n") + b"\n\n")
        await response.write_eof()
        if reader.error is not None or not reader.done:
            return Outcome.ERROR
        return Outcome.OK if reader.pieces else Outcome.EMPTY

    async def _whole(self, url: str, body: dict[str, Any], headers: dict[str, str], who: str) -> dict[str, Any]:
        assert self._session is not None
        try:
            async with self._session.post(url, json=body, headers=headers) as answer:
                text = await answer.text()
                if answer.status != 200:
                    raise _refused(answer.status, text, who)
                content: dict[str, Any] = json.loads(text)
        except (aiohttp.ClientError, ValueError) as error:
            raise Ended(Outcome.ERROR, 502, f"{who}: {error!r}") from error
        if (error_text := error_of(content)) is not None:
            raise Ended(Outcome.ERROR, 502, f"{who}: {error_text}")
        return content

    def _count_inflight(self, change: int) -> None:
        self._inflight += change
        self.metrics.inflight.set(self._inflight)


def _refused(status: int, text: str, who: str) -> Ended:
    outcome = Outcome.REJECTED if status in (429, 503) else Outcome.ERROR
    return Ended(outcome, status, f"{who}: {text[:500]}")


async def _end_with_error(response: web.StreamResponse, message: str) -> None:
    try:
        await response.write(b"data: " + json.dumps({"error": {"message": message}}).encode() + b"\n\n")
        await response.write_eof()
    except aiohttp.ClientConnectionResetError:
        return  # the client has gone too; what happened is counted already


async def serve(proxy: Proxy) -> None:
    """Serve on a loopback port the system gives out, and print the URL."""
    runner = web.AppRunner(proxy.app(), handler_cancellation=True, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, LOOPBACK, 0)
        await site.start()
        print(f"http://{LOOPBACK}:{runner.addresses[0][1]}", flush=True)
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _named_url(text: str) -> tuple[str, str]:
    name, _, url = text.partition("=")
    if not name or not url:
        raise argparse.ArgumentTypeError(f"expected ID=URL, got {text!r}")
    return name, url.rstrip("/")


def _main() -> None:
    parser = argparse.ArgumentParser(description="a prefill/decode proxy with fault switches")
    parser.add_argument("--prefill", action="append", type=_named_url, required=True, metavar="ID=URL")
    parser.add_argument("--decode", action="append", type=_named_url, required=True, metavar="ID=URL")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS")
    parser.add_argument("--max-inflight", type=int, default=256)
    args = parser.parse_args()
    prefills, decodes = dict(args.prefill), dict(args.decode)
    proxy = Proxy(prefills, decodes, timeout_s=args.timeout, max_inflight=args.max_inflight)
    try:
        asyncio.run(serve(proxy))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    _main()
