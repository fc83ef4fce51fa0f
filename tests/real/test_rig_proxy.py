"""The rig's proxy and load against doubles of engines: what a person reads in a recording depends on these counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from tests.real.rig import pages
from tests.real.rig.load import Load, LoadOptions
from tests.real.rig.proxy import Proxy

Client = TestClient[web.Request, web.Application]
USAGE = json.dumps({"choices": [], "usage": {"completion_tokens": 5}})
ADDRESS = {"remote_engine_id": "prefill-0", "do_remote_prefill": True}


class EngineDouble:
    """Answers both legs; `script` says what the decode stream holds."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.status = 200
        self.script = [_token("a"), _token("b"), _token("cde"), USAGE, "[DONE]"]
        self.after_first: asyncio.Event | None = None

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_get("/health", self._health)
        return app

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        if self.status != 200:
            return web.json_response({"error": {"message": "no"}}, status=self.status)
        if body.get("kv_transfer_params", {}).get("do_remote_decode"):
            return web.json_response({"choices": [{"text": "a"}], "kv_transfer_params": ADDRESS})
        if not body.get("stream"):
            return web.json_response({"choices": [{"text": "abc"}], "usage": {"completion_tokens": 3}})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number, event in enumerate(self.script):
            if number == 1 and self.after_first is not None:
                await self.after_first.wait()
            await response.write(f"data: {event}\n\n".encode())
        return response


class Rig:
    """A proxy before two doubles."""

    def __init__(self) -> None:
        self.prefill, self.decode = EngineDouble(), EngineDouble()
        self.client: Client

    async def page(self) -> str:
        return await (await self.client.get("/metrics")).text()

    async def ask(self, *, stream: bool = True) -> tuple[int, str]:
        body = {"prompt": "x", "max_tokens": 3, "min_tokens": 3, "stream": stream}
        answer = await self.client.post("/v1/completions", json=body)
        return answer.status, await answer.text()

    async def outcomes(self) -> dict[str, float]:
        page = await self.page()
        names = ("ok", "error", "timeout", "aborted", "empty", "rejected")
        counts = {n: pages.total(page, "pdops_router_requests_total", outcome=n) for n in names}
        return {n: v for n, v in counts.items() if v}


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    async with TestServer(rig.prefill.app()) as p, TestServer(rig.decode.app()) as d:
        urls = [str(server.make_url("")).rstrip("/") for server in (p, d)]
        proxy = Proxy({"prefill-0": urls[0]}, {"decode-0": urls[1]}, timeout_s=5.0, max_inflight=2)
        async with TestClient(TestServer(proxy.app(), handler_cancellation=True)) as rig.client:
            yield rig


def _token(text: str, **more: object) -> str:
    return json.dumps({"choices": [{"text": text, "finish_reason": None, **more}]})


async def test_every_series_that_can_be_known_is_there_before_the_first_request(rig: Rig) -> None:
    page = await rig.page()
    pair = {"src": "prefill-0", "dst": "decode-0"}
    for outcome in ("ok", "error", "timeout", "aborted", "empty", "rejected"):
        assert pages.total(page, "pdops_router_requests_total", outcome=outcome) == 0
        assert pages.total(page, "pdops_router_pair_requests_total", outcome=outcome, **pair) == 0
    assert pages.total(page, "pdops_router_handoff_seconds_count", **pair) == 0
    assert pages.total(page, "pdops_router_prefill_seconds_count", src="prefill-0") == 0
    assert pages.total(page, "pdops_router_ttft_seconds_count") == 0
    assert pages.total(page, "pdops_router_inflight_requests") == 0
    assert pages.total(page, "pdops_router_worker_up") == 2
    assert "_created" not in page


async def test_a_stream_goes_through_both_legs_and_is_timed(rig: Rig) -> None:
    status, text = await rig.ask()
    assert status == 200
    assert text.count("data: ") == 5
    prefill, decode = rig.prefill.bodies[0], rig.decode.bodies[0]
    assert (prefill["max_tokens"], prefill["stream"], "min_tokens" in prefill) == (1, False, False)
    assert decode["kv_transfer_params"] == ADDRESS
    page = await rig.page()
    counts = {n: pages.total(page, f"pdops_router_{n}_seconds_count") for n in ("ttft", "itl", "request", "handoff")}
    assert counts == {"ttft": 1, "itl": 2, "request": 1, "handoff": 1}
    assert await rig.outcomes() == {"ok": 1}


async def test_an_answer_in_one_piece_has_no_first_token_time(rig: Rig) -> None:
    assert (await rig.ask(stream=False))[0] == 200
    assert pages.total(await rig.page(), "pdops_router_ttft_seconds_count") == 0
    assert await rig.outcomes() == {"ok": 1}


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ([_token("a"), '{"error": {"message": "pull failed", "code": 500}}', "[DONE]"], "error"),
        ([_token("a")], "error"),
        (["[DONE]"], "empty"),
        ([_token("", finish_reason="stop"), "[DONE]"], "empty"),
        ([_token(""), _token("", finish_reason="length"), "[DONE]"], "ok"),
    ],
    ids=["error object under status 200", "cut short", "nothing", "an end without output", "tokens without text"],
)
async def test_what_a_stream_holds_decides_the_outcome(rig: Rig, script: list[str], outcome: str) -> None:
    rig.decode.script = script
    assert (await rig.ask())[0] == 200
    assert await rig.outcomes() == {outcome: 1}


async def test_an_engine_that_refuses_is_told_from_one_that_fails(rig: Rig) -> None:
    rig.prefill.status = 503
    assert (await rig.ask())[0] == 503
    rig.prefill.status, rig.decode.status = 200, 500
    assert (await rig.ask())[0] == 500
    assert await rig.outcomes() == {"rejected": 1, "error": 1}


async def test_held_requests_wait_until_released(rig: Rig) -> None:
    await rig.client.post("/rig/fault", json={"mode": "hold"})
    task = asyncio.create_task(rig.ask())
    while (await (await rig.client.get("/rig/fault")).json())["held"] < 1:
        await asyncio.sleep(0.01)
    assert not rig.decode.bodies
    await rig.client.post("/rig/fault", json={"mode": "none"})
    assert (await task)[0] == 200
    assert await rig.outcomes() == {"ok": 1}


async def test_the_asked_share_is_abandoned_after_prefill(rig: Rig) -> None:
    await rig.client.post("/rig/fault", json={"mode": "abandon", "fraction": 0.5})
    assert sorted([(await rig.ask())[0] for _ in range(6)]) == [200] * 3 + [499] * 3
    assert (len(rig.prefill.bodies), len(rig.decode.bodies)) == (6, 3)
    assert await rig.outcomes() == {"ok": 3, "aborted": 3}


async def test_dropped_parameters_leave_prefill_used_and_decode_uninformed(rig: Rig) -> None:
    await rig.client.post("/rig/fault", json={"mode": "drop-params"})
    assert (await rig.ask())[0] == 200
    assert len(rig.prefill.bodies) == 1
    assert "kv_transfer_params" not in rig.decode.bodies[0]


@pytest.mark.parametrize("wish", [{"mode": "burn"}, {"mode": "abandon", "fraction": 0}, [], {}])
async def test_an_unknown_fault_is_refused(rig: Rig, wish: object) -> None:
    assert (await rig.client.post("/rig/fault", json=wish)).status == 400
    assert (await (await rig.client.get("/rig/fault")).json())["mode"] == "none"


async def test_a_client_that_leaves_is_counted_and_a_full_proxy_rejects(rig: Rig) -> None:
    rig.decode.after_first = asyncio.Event()
    streams = [await rig.client.post("/v1/completions", json={"prompt": "x", "stream": True}) for _ in range(2)]
    assert (await rig.ask())[0] == 503
    for answer in streams:
        await answer.content.readline()
        answer.close()
    while await rig.outcomes() != {"aborted": 2, "rejected": 1}:
        await asyncio.sleep(0.01)
    rig.decode.after_first.set()


async def test_a_worker_that_cannot_be_reached_is_an_error_and_down(unused_tcp_port: int) -> None:
    gone = f"http://127.0.0.1:{unused_tcp_port}"
    proxy = Proxy({"prefill-0": gone}, {"decode-0": gone}, timeout_s=5.0, max_inflight=2)
    async with TestClient(TestServer(proxy.app())) as client:
        answer = await client.post("/v1/completions", json={"prompt": "x", "stream": True})
        page = await (await client.get("/metrics")).text()
    assert answer.status == 502
    assert pages.total(page, "pdops_router_worker_up", worker="prefill-0") == 0
    assert pages.total(page, "pdops_router_requests_total", outcome="error") == 1


async def test_load_is_bounded_and_adds_up(rig: Rig) -> None:
    options = LoadOptions(str(rig.client.make_url("")).rstrip("/"), rate=40, duration=0.5, concurrency=2, prompt=20)
    summary = await Load(options).run(asyncio.Event())
    assert summary["outcomes"] == {"ok": summary["sent"]}
    assert summary["tokens"] == 5 * int(str(summary["sent"]))
    assert all(len(body["prompt"]) == 20 for body in rig.prefill.bodies)


async def test_load_tells_failures_and_stops_when_asked(rig: Rig) -> None:
    rig.decode.script = ['{"error": {"message": "pull failed"}}', "[DONE]"]
    stop = asyncio.Event()
    options = LoadOptions(str(rig.client.make_url("")).rstrip("/"), rate=40, duration=600, concurrency=2)
    task = asyncio.create_task(Load(options).run(stop))
    while not (await rig.outcomes()).get("error"):
        await asyncio.sleep(0.01)
    stop.set()
    summary = await asyncio.wait_for(task, 30)
    assert summary["stopped_early"] is True
    assert dict(summary["outcomes"])["error in stream"] >= 1  # type: ignore[call-overload]


def test_aiohttp_says_a_lost_client_by_this_name() -> None:
    assert issubclass(aiohttp.ClientConnectionResetError, ConnectionResetError)
