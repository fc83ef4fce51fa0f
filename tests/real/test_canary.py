"""The canary on the real pair: right where KV is handed over, and what it says where a router or prefill is broken."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from pdops.clock import WallClock
from pdops.model.cluster import Cluster, Endpoint, Pair, Role, Worker
from pdops.probe.canary import Canary, CanarySettings
from pdops.probe.encode import to_json
from pdops.probe.report import CanaryReport, Result, Status
from pdops.reference import model, pages
from pdops.reference.running import Running
from pdops.reference.spec import LOOPBACK
from tests.real.conftest import DECODE, PREFILL

# The first test may build the engine's environment and start two engines.
pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

BLOCK = 32
SETTINGS = CanarySettings(timeout_s=120.0, settle_s=60.0)


def _worker(worker: str, role: Role, url: str) -> Worker:
    engine = "pdops_router" if role is Role.ROUTER else "vllm"
    return Worker(
        id=worker, role=role, pool=role.value, url=url, engine=engine, endpoints=(Endpoint(f"{url}/metrics", engine),)
    )


def _cluster(running: Running, *, prefill: str | None = None, router: str | None = None) -> Cluster:
    workers = [
        _worker(PREFILL, Role.PREFILL, prefill or running.url(PREFILL)),
        _worker(DECODE, Role.DECODE, running.url(DECODE)),
    ]
    if router is not None:
        workers.append(_worker("router-0", Role.ROUTER, router))
    return Cluster(
        name="real", workers=tuple(workers), model=model.NAME, kv_bytes_per_token=float(model.KV_BYTES_PER_TOKEN)
    )


async def _ask(cluster: Cluster) -> CanaryReport:
    return await Canary(cluster, WallClock(), SETTINGS).run([Pair(PREFILL, DECODE)])


def _status(result: Result) -> dict[str, str]:
    return {check.name: check.status.value for check in result.checks}


async def test_the_pair_and_the_router_are_right(running: Running) -> None:
    report = await _ask(_cluster(running, router=running.router_url))
    print(to_json(report))
    assert report.status is Status.OK, [r.because for r in report.results]
    result = report.pairs[0]
    found = {check.name: check for check in result.checks}
    assert result.prompt_tokens is not None
    assert found["text"].why == "compared by token ids"
    assert found["external_tokens"].observed == result.prompt_tokens
    blocks = -(-result.prompt_tokens // BLOCK)
    assert found["bytes"].observed == blocks * BLOCK * model.KV_BYTES_PER_TOKEN
    assert report.routers[0].dst == DECODE


async def test_a_second_canary_of_the_same_pair_is_not_answered_by_a_cache(running: Running) -> None:
    result = (await _ask(_cluster(running))).pairs[0]
    assert {c.name: c.observed for c in result.checks}["external_tokens"] == result.prompt_tokens


async def test_kv_of_another_prompt_is_wrong_text_although_all_counters_are_right(running: Running) -> None:
    async with _misleading(running.url(PREFILL)) as url:
        report = await _ask(_cluster(running, prefill=url))
    result = report.pairs[0]
    print(to_json(report))
    assert result.status is Status.WRONG
    assert {name for name, status in _status(result).items() if status != "ok"} == {"text"}


async def test_a_router_that_drops_the_address_is_caught_by_where_the_tokens_came_from(running: Running) -> None:
    pages.post(f"{running.router_url}/admin/drills", {"mode": "drop-params"}, 10.0, running.admin_token_file)
    try:
        report = await _ask(_cluster(running, router=running.router_url))
    finally:
        pages.post(f"{running.router_url}/admin/drills", {"mode": "none"}, 10.0, running.admin_token_file)
    assert report.pairs[0].status is Status.OK
    found = _status(report.routers[0])
    assert (found["text"], found["external_tokens"], found["local_compute"]) == ("ok", "wrong", "wrong")


@asynccontextmanager
async def _misleading(prefill: str) -> AsyncIterator[str]:
    """Stand before prefill and let it keep the KV of another prompt than was asked for, of the same length."""

    async def passed(request: web.Request) -> web.Response:
        body = json.loads(await request.read() or b"{}")
        if "kv_transfer_params" in body:
            body["prompt"] = body["prompt"].translate(str.maketrans("aeiou", "eioua"))
        async with (
            aiohttp.ClientSession(trust_env=False) as session,
            session.request(request.method, prefill + request.path, json=body or None) as answer,
        ):
            return web.Response(body=await answer.read(), status=answer.status, content_type=answer.content_type)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", passed)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, LOOPBACK, 0)
        await site.start()
        yield f"http://{LOOPBACK}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
