"""pdops-router before the real pair: the hand-off, and prefill's memory after clients that left."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pdops.clock import WallClock
from tests.real.rig import model, pages
from tests.real.rig.pair import BLOCK_SIZE, DECODE, PREFILL, Pair
from tests.real.rig.procs import Process

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
CLOCK = WallClock()
TOKEN = "for-this-test-only"
LEAVE_AFTER_S = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
MOVED = "vllm:nixl_bytes_transferred_sum"
EXPIRED = "vllm:nixl_num_kv_expired_reqs_total"
TOO_LATE = "vllm:nixl_num_notifications_after_expiry_total"


@pytest.fixture(scope="module")
def router(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("router")
    token = folder / "admin.token"
    token.touch(mode=0o600)
    token.write_text(TOKEN)
    command = [sys.executable, "-m", "pdops.router", f"--prefill={PREFILL}={pair.prefill.url}"]
    command += [f"--decode={DECODE}={pair.decode.url}", f"--admin-token-file={token}", "--allow-drills"]
    command += [f"--state={folder / 'workers.json'}", f"--block-size={BLOCK_SIZE}", "--kv-bytes-per-token=1024"]
    process = Process("router", command, log=folder / "router.log", cwd=ROOT, capture=True)
    try:
        yield process.read_line(30)
    finally:
        process.stop()


def _prompt(seed: int, words: int = 90) -> str:
    # Each prompt is its own, so that no prefix cache answers.
    draw = random.Random(seed)
    return " ".join(f"{draw.randrange(10_000)}" for _ in range(words))


async def _whole(session: aiohttp.ClientSession, url: str, prompt: str, **more: Any) -> dict[str, Any]:
    body = {"model": model.NAME, "prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True, **more}
    async with session.post(f"{url}/v1/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        content = await answer.json()
    assert isinstance(content, dict)
    return content


async def _drill(session: aiohttp.ClientSession, url: str, **wanted: object) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with session.post(f"{url}/admin/drills", json=wanted, headers=headers) as answer:
        assert answer.status == 200


async def _until(condition: Any, limit_s: float) -> None:
    begin = CLOCK.monotonic()
    while not condition():
        assert CLOCK.monotonic() - begin < limit_s, "it did not come"
        await CLOCK.sleep(0.2)


async def test_text_through_both_legs_is_what_prefill_alone_says(pair: Pair, router: str) -> None:
    """The text is prefill's own, streamed or not, and decode computed nothing of the prompt."""
    async with aiohttp.ClientSession() as session:
        before = pages.total(pair.decode.metrics(), MOVED) or 0.0
        counted = _value(router, "pdops_router_pair_kv_bytes_total")
        routed = await _whole(session, router, _prompt(1))
        alone = await _whole(session, pair.prefill.url, _prompt(1))
        assert routed["choices"][0]["text"] == alone["choices"][0]["text"]
        body = {"model": model.NAME, "prompt": _prompt(1), "max_tokens": 12, "temperature": 0, "ignore_eos": True}
        text = ""
        async with session.post(f"{router}/v1/completions", json={**body, "stream": True}) as answer:
            assert answer.status == 200
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    text += json.loads(line[6:])["choices"][0]["text"]
        assert text == alone["choices"][0]["text"]
        moved = (pages.total(pair.decode.metrics(), MOVED) or 0.0) - before
        assert moved > 0
        said = _value(router, "pdops_router_pair_kv_bytes_total") - counted
        # The second request finds a part of the prompt on decode already.
        assert said >= moved
        chat = {"model": model.NAME, "messages": [{"role": "user", "content": _prompt(2)}], "max_tokens": 4}
        async with session.post(f"{router}/v1/chat/completions", json=chat) as answer:
            assert answer.status in (200, 400), await answer.text()


async def test_clients_that_leave_cost_prefill_no_lease(pair: Pair, router: str) -> None:
    """KV is given free wherever the client leaves; only the abandoned control waits for the end of its lease."""
    start = {name: _of_prefill(pair, name) for name in (EXPIRED, TOO_LATE)}
    async with aiohttp.ClientSession() as session:
        await _drill(session, router, mode="hold")
        for seed in range(100, 104):
            await _leave(session, router, seed, 0.5)
        await _drill(session, router, mode="none")
        for round_number in range(3):
            for number, after_s in enumerate(LEAVE_AFTER_S):
                await _leave(session, router, 200 + 10 * round_number + number, after_s)
        await _until(lambda: _value(router, "pdops_router_inflight_requests") == 0, 30)
        assert _value(router, "pdops_router_kv_release_total", result="sent") >= 4
        assert _value(router, "pdops_router_kv_release_total", result="failed") == 0
        await _drill(session, router, mode="abandon")
        body = {"model": model.NAME, "prompt": _prompt(999), "max_tokens": 4}
        async with session.post(f"{router}/v1/completions", json=body) as answer:
            assert answer.status == 499
        await _drill(session, router, mode="none")
    # The control came last: whatever else had been left behind would have expired before it.
    await _until(lambda: _of_prefill(pair, EXPIRED) > start[EXPIRED], pair.options.lease_s + 60)
    grown = {name: _of_prefill(pair, name) - value for name, value in start.items()}
    print(
        grown, {r: _value(router, "pdops_router_kv_release_total", result=r) for r in ("sent", "no_decode", "failed")}
    )
    assert grown == {EXPIRED: 1, TOO_LATE: 0}


def _of_prefill(pair: Pair, name: str) -> float:
    return pages.total(pair.prefill.metrics(), name) or 0.0


async def _leave(session: aiohttp.ClientSession, router: str, seed: int, after_s: float) -> None:
    body = {"model": model.NAME, "prompt": _prompt(seed), "max_tokens": 64, "stream": True, "ignore_eos": True}
    limit = aiohttp.ClientTimeout(total=max(after_s, 0.001))
    try:
        async with session.post(f"{router}/v1/completions", json=body, timeout=limit) as answer:
            await answer.read()
    except TimeoutError:
        return


def _value(router: str, name: str, **labels: str) -> float:
    return pages.total(pages.get(f"{router}/metrics"), name, **labels) or 0.0
