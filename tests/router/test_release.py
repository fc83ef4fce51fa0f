"""KV of requests whose client left: prefill must get its memory back. Before doubles of engines."""

from __future__ import annotations

import asyncio

import pytest

from tests.router.doubles import Bench, bench


async def _leave(b: Bench, when: object, **more: object) -> None:
    task = asyncio.create_task(b.ask(**more))  # type: ignore[arg-type]
    await b.until(when)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await b.until(lambda: b.router.handler.inflight == 0 and not b.router.background.tasks)


async def test_a_client_that_leaves_during_prefill_aborts_it() -> None:
    async with bench() as b:
        b.prefill.before_answer = asyncio.Event()
        await _leave(b, lambda: b.prefill.running)
        await b.until(lambda: b.prefill.aborted == 1)
        assert not b.decode.bodies
        assert await b.outcomes() == {"aborted": 1}


async def test_a_prefill_that_is_nearly_done_when_its_client_leaves_has_its_kv_given_free() -> None:
    async with bench() as b:
        b.prefill.before_answer = asyncio.Event()
        task = asyncio.create_task(b.ask())
        await b.until(lambda: b.prefill.running)
        task.cancel()
        await b.until(lambda: b.router.handler.inflight == 0)
        b.prefill.before_answer.set()
        await b.until(lambda: b.decode.releases == ["req-1"])
        await b.until(lambda: not b.router.background.tasks)
        assert b.registry.get("prefill-0").inflight == 0


async def test_a_client_that_leaves_between_the_legs_has_its_kv_given_free_through_decode() -> None:
    async with bench() as b:
        await b.admin("POST", "/drills", {"mode": "hold"})
        await _leave(b, lambda: b.router.drill.held)
        assert b.decode.releases == ["req-1"]
        assert not b.decode.bodies
        assert not b.prefill.held
        assert await b.value("kv_release_total", result="sent") == 1
        assert b.registry.get("decode-0").inflight == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_while_decode_is_silent_aborts_decode(stream: bool) -> None:
    async with bench() as b:
        b.decode.before_answer = asyncio.Event()
        await _leave(b, lambda: b.decode.running, stream=stream)
        await b.until(lambda: b.decode.aborted == 1)
        assert not b.decode.releases, "decode tells prefill itself"
        assert not b.prefill.held
        assert await b.outcomes() == {"aborted": 1}


async def test_a_client_that_leaves_a_stream_aborts_decode() -> None:
    async with bench() as b:
        b.decode.gate = asyncio.Event()
        async with b.client.post("/v1/completions", json={"prompt": "x", "stream": True}) as answer:
            assert await answer.content.readline()
            answer.close()
        await b.until(lambda: b.decode.aborted == 1)
        assert await b.outcomes() == {"aborted": 1}
        assert b.registry.get("decode-0").inflight == 0


async def test_kv_for_a_decode_that_cannot_be_reached_is_given_free_through_another() -> None:
    async with bench(decodes=2) as b:
        await b.admin("POST", "/drills", {"mode": "hold"})
        task = asyncio.create_task(b.ask())
        await b.until(lambda: b.router.drill.held)
        await b.servers["decode-0"].close()
        await b.admin("POST", "/drills", {"mode": "none"})
        status, _ = await task
        assert status == 502
        await b.until(lambda: b.decodes["decode-1"].releases == ["req-1"])
        assert not b.registry.get("decode-0").up, "a refused connection counts at once"
        assert not b.decodes["decode-1"].bodies, "nothing is tried again"


async def test_an_abandoned_prefill_is_left_alone_because_the_drill_says_so() -> None:
    async with bench() as b:
        await b.admin("POST", "/drills", {"mode": "abandon", "fraction": 0.5})
        statuses = [(await b.ask())[0] for _ in range(4)]
        assert sorted(statuses) == [200, 200, 499, 499]
        assert len(b.prefill.held) == 2
        assert not b.decode.releases


async def test_a_router_that_forgets_the_address_leaves_kv_behind() -> None:
    async with bench() as b:
        await b.admin("POST", "/drills", {"mode": "drop-params"})
        assert (await b.ask())[0] == 200
        assert "kv_transfer_params" not in b.decode.bodies[0]
        assert (len(b.prefill.held), b.decode.releases) == (1, [])
