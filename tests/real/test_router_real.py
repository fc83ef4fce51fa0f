"""pdops-router before the real pair: the hand-off, and prefill's memory after clients that left."""

from __future__ import annotations

import json
import random
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pdops.clock import WallClock
from pdops.reference import pages
from pdops.reference.running import Running
from tests.real.conftest import DECODE, PREFILL

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
CLOCK = WallClock()
LEAVE_AFTER_S = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
MOVED = "vllm:nixl_bytes_transferred_sum"
EXPIRED = "vllm:nixl_num_kv_expired_reqs_total"
TOO_LATE = "vllm:nixl_num_notifications_after_expiry_total"


def _prompt(seed: int, words: int = 90) -> str:
    # Each prompt is its own, so that no prefix cache answers.
    draw = random.Random(seed)
    return " ".join(f"{draw.randrange(10_000)}" for _ in range(words))


async def _whole(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> dict[str, Any]:
    async with session.post(f"{url}/v1/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        content = await answer.json()
    assert isinstance(content, dict)
    return content


async def _drill(session: aiohttp.ClientSession, running: Running, **wanted: object) -> None:
    headers = {"Authorization": f"Bearer {running.admin_token_file.read_text().strip()}"}
    async with session.post(f"{running.router_url}/admin/drills", json=wanted, headers=headers) as answer:
        assert answer.status == 200


async def _until(condition: Any, limit_s: float) -> None:
    begin = CLOCK.monotonic()
    while not condition():
        assert CLOCK.monotonic() - begin < limit_s, "it did not come"
        await CLOCK.sleep(0.2)


async def test_text_through_both_legs_is_what_prefill_alone_says(running: Running) -> None:
    """The text is prefill's own, streamed or not, and its KV moved."""
    model = running.spec.served_model
    body = {"model": model, "prompt": _prompt(1), "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    moved, counted = _total(running.metrics(DECODE), MOVED), _router(running, "pair_kv_bytes_total")
    async with aiohttp.ClientSession() as session:
        routed = await _whole(session, running.router_url, body)
        alone = await _whole(session, running.url(PREFILL), body)
        assert routed["choices"][0]["text"] == alone["choices"][0]["text"]
        text = ""
        async with session.post(f"{running.router_url}/v1/completions", json={**body, "stream": True}) as answer:
            assert answer.status == 200
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    text += json.loads(line[6:])["choices"][0]["text"]
        assert text == alone["choices"][0]["text"]
    # Engines publish counters at a step, so the last ones of a request may come after its answer.
    await _until(lambda: _total(running.metrics(DECODE), MOVED) > moved, 60)
    said = _router(running, "pair_kv_bytes_total") - counted
    # The second request finds a part of the prompt on decode already.
    assert said >= _total(running.metrics(DECODE), MOVED) - moved


async def test_clients_that_leave_cost_prefill_no_lease(running: Running) -> None:
    """KV is given free wherever the client leaves; only the abandoned control waits for the end of its lease."""
    start = {name: _total(running.metrics(PREFILL), name) for name in (EXPIRED, TOO_LATE)}
    released = {result: _router(running, "kv_release_total", result=result) for result in ("sent", "failed")}
    async with aiohttp.ClientSession() as session:
        await _drill(session, running, mode="hold")
        for seed in range(100, 104):
            await _leave(session, running, seed, 0.5)
        await _drill(session, running, mode="none")
        for round_number in range(3):
            for number, after_s in enumerate(LEAVE_AFTER_S):
                await _leave(session, running, 200 + 10 * round_number + number, after_s)
        await _until(lambda: _router(running, "inflight_requests") == 0, 30)
        assert _router(running, "kv_release_total", result="sent") - released["sent"] >= 4
        assert _router(running, "kv_release_total", result="failed") == released["failed"]
        await _drill(session, running, mode="abandon")
        body = {"model": running.spec.served_model, "prompt": _prompt(999), "max_tokens": 4}
        async with session.post(f"{running.router_url}/v1/completions", json=body) as answer:
            assert answer.status == 499
        await _drill(session, running, mode="none")
    # The control came last: whatever else had been left behind would have expired before it.
    limit_s = running.spec.lease_s + 60
    await _until(lambda: _total(running.metrics(PREFILL), EXPIRED) > start[EXPIRED], limit_s)
    page = running.metrics(PREFILL)
    assert {name: _total(page, name) - value for name, value in start.items()} == {EXPIRED: 1, TOO_LATE: 0}


async def _leave(session: aiohttp.ClientSession, running: Running, seed: int, after_s: float) -> None:
    body = {"model": running.spec.served_model, "prompt": _prompt(seed), "max_tokens": 64, "ignore_eos": True}
    limit = aiohttp.ClientTimeout(total=max(after_s, 0.001))
    try:
        url = f"{running.router_url}/v1/completions"
        async with session.post(url, json={**body, "stream": True}, timeout=limit) as answer:
            await answer.read()
    except TimeoutError:
        return


def _router(running: Running, name: str, **labels: str) -> float:
    return _total(pages.get(f"{running.router_url}/metrics"), f"pdops_router_{name}", **labels)


def _total(page: str, name: str, **labels: str) -> float:
    samples = (sample for family in text_string_to_metric_families(page) for sample in family.samples)
    return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())
