"""Waiting, turning away and back-pressure, before doubles of engines."""

from __future__ import annotations

import asyncio
import random

import pytest

from pdops.router.settings import Settings
from tests.router.doubles import PATIENCE_S, Bench, bench


async def _start(b: Bench, count: int) -> list[asyncio.Task[tuple[int, str]]]:
    tasks = []
    for number in range(count):
        tasks.append(asyncio.create_task(b.ask()))
        await b.until(lambda number=number: b.router.handler.inflight == number + 1)
    return tasks


async def test_requests_wait_first_and_are_turned_away_only_at_the_limit() -> None:
    async with bench(Settings(queue_limit=2, max_inflight_decode=1)) as b:
        b.decode.gate = asyncio.Event()
        tasks = await _start(b, 3)
        await b.until(lambda: b.decode.running == 1)
        assert b.router.queue.depth == 2
        assert await b.value("queue_depth") == 2
        async with b.client.post("/v1/completions", json={"prompt": "x"}) as answer:
            assert answer.status == 503
            assert int(answer.headers["Retry-After"]) >= 1
        assert await b.value("rejected_total", reason="queue_full") == 1
        b.decode.gate.set()
        assert [(await t)[0] for t in tasks] == [200, 200, 200]
        assert await b.outcomes() == {"ok": 3, "rejected": 1}


async def test_no_prefill_starts_while_decode_has_no_room() -> None:
    async with bench(Settings(max_inflight_decode=1)) as b:
        b.decode.gate = asyncio.Event()
        tasks = await _start(b, 4)
        await b.until(lambda: b.decode.running == 1)
        assert len(b.prefill.bodies) == 1
        b.decode.gate.set()
        await asyncio.gather(*tasks)
        assert (len(b.prefill.bodies), b.prefill.peak, b.decode.peak) == (4, 1, 1)


async def test_a_full_prefill_holds_requests_before_decode() -> None:
    async with bench(Settings(max_inflight_prefill=1)) as b:
        b.prefill.before_answer = asyncio.Event()
        tasks = await _start(b, 3)
        assert (b.router.queue.depth, b.registry.get("decode-0").inflight) == (2, 1)
        b.prefill.before_answer.set()
        assert [(await t)[0] for t in tasks] == [200] * 3
        assert b.prefill.peak == 1


async def test_a_client_that_leaves_the_queue_leaves_its_place() -> None:
    async with bench(Settings(max_inflight_decode=1)) as b:
        b.decode.gate = asyncio.Event()
        tasks = await _start(b, 3)
        tasks[1].cancel()
        await b.until(lambda: b.router.queue.depth == 1)
        b.decode.gate.set()
        assert [(await tasks[n])[0] for n in (0, 2)] == [200, 200]
        await b.until(lambda: b.router.handler.inflight == 0)
        assert b.registry.get("decode-0").inflight == b.registry.get("prefill-0").inflight == 0
        assert await b.outcomes() == {"ok": 2, "aborted": 1}


async def test_waiting_ends_at_the_deadline() -> None:
    async with bench(Settings(max_inflight_decode=1, deadline_s=0.2)) as b:
        b.decode.gate = asyncio.Event()
        first = (await _start(b, 1))[0]
        status, text = await b.ask()
        assert (status, "no pair had room" in text) == (503, True)
        assert await b.value("rejected_total", reason="deadline") == 1
        b.decode.gate.set()
        assert (await first)[0] == 200, "a deadline cuts off nobody who is being served"


async def test_a_deadline_that_prefill_cannot_meet_is_said_at_once() -> None:
    async with bench(Settings(deadline_s=1.0)) as b:
        b.router.tools.estimator.learn("prefill-0", 5.0, 1)
        assert (await b.ask())[0] == 503
        assert not b.prefill.bodies
        assert await b.value("rejected_total", reason="deadline") == 1


async def test_a_deadline_that_the_transfer_cannot_meet_gives_the_kv_free() -> None:
    async with bench(Settings(deadline_s=5.0)) as b:
        # 0.2 s a token, and the prompt turns out to have 70.
        for tokens in (1, 2):
            b.router.tools.estimator.learn(("prefill-0", "decode-0"), 0.2 * tokens, tokens)
        status, text = await b.ask()
        assert (status, "hand-off" in text) == (503, True)
        await b.until(lambda: b.decode.releases == ["req-1"])
        assert await b.value("rejected_total", reason="deadline_transfer") == 1


@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_requests_wait_for_a_worker_that_is_away_and_are_served_when_it_is_back(role: str) -> None:
    async with bench() as b:
        double = b.prefill if role == "prefill" else b.decode
        double.health = 500
        await b.until(lambda: not b.registry.get(f"{role}-0").up)
        task = (await _start(b, 1))[0]
        assert b.router.queue.depth == 1
        double.health = 200
        assert (await task)[0] == 200


async def test_who_was_missing_is_named_when_the_deadline_comes() -> None:
    async with bench(Settings(deadline_s=0.2)) as b:
        await b.admin("POST", "/workers/prefill-0/cordon")
        status, text = await b.ask()
        assert (status, "no prefill worker took requests" in text) == (503, True)
        assert await b.value("rejected_total", reason="no_prefill") == 1


async def test_a_draining_router_takes_nobody_and_ends_what_runs() -> None:
    async with bench() as b:
        b.decode.gate = asyncio.Event()
        task = (await _start(b, 1))[0]
        draining = asyncio.create_task(b.router.drain(60.0))
        await b.until(lambda: b.router.queue.draining)
        assert (await b.ask())[0] == 503
        async with b.client.get("/ready") as answer:
            assert answer.status == 503
        b.decode.gate.set()
        assert (await task)[0] == 200
        assert await draining == 0


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_clients_do_no_place_is_lost_and_no_limit_passed(seed: int) -> None:
    draw = random.Random(seed)
    limits = Settings(
        max_inflight_prefill=2, max_inflight_decode=3, policy="least-loaded", first_token_timeout_s=PATIENCE_S
    )
    async with bench(limits, prefills=2, decodes=2) as b:
        for double in (*b.prefills.values(), *b.decodes.values()):
            double.delay_s = 0.01
        tasks = []
        for number in range(80):
            tasks.append(asyncio.create_task(b.ask(stream=draw.random() < 0.5)))
            await asyncio.sleep(draw.random() * 0.01)
            if draw.random() < 0.4:
                draw.choice(tasks).cancel()
            if number == 40:
                await b.admin("POST", "/workers/decode-1/cordon")
            if number == 60:
                await b.admin("POST", "/workers/decode-1/uncordon")
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(e, asyncio.CancelledError) or e[0] == 200 for e in ended if not isinstance(e, Exception))
        assert not [e for e in ended if isinstance(e, Exception)]
        await b.until(lambda: b.router.handler.inflight == 0 and not b.router.background.tasks)
        assert [w.inflight for w in b.registry.workers.values()] == [0, 0, 0, 0]
        assert b.router.queue.depth == 0
        assert max(p.peak for p in b.prefills.values()) <= 2
        await b.until(lambda: not any(e.running for e in (*b.prefills.values(), *b.decodes.values())))
        assert not b.prefill.held, "KV left behind"
