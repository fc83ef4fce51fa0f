"""Facts that are collected beside the scrapes of a live source."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from pdops.clock import VirtualClock, WallClock
from pdops.model.cluster import Cluster, Endpoint, Role, Worker
from pdops.sources.facts import beside
from pdops.sources.facts.beside import FactsBeside, as_notes
from pdops.sources.facts.collected import Collected, Unread
from pdops.sources.scrape import ScrapeSource


def worker(name: str, pool: str = "decode", **more: object) -> Worker:
    return Worker(id=name, role=Role.DECODE, pool=pool, **more)  # type: ignore[arg-type]


async def done(facts: FactsBeside) -> dict[str, dict[str, str]]:
    async with asyncio.timeout(60):
        while not (found := facts.take()):
            await asyncio.sleep(0.01)
    return {w: dict(f) for w, f in found.items()}


async def test_an_engine_and_its_start_log_are_read_and_the_rest_is_said(tmp_path: Path, fixtures: Path) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({"version": "0.32.0"})

    app = web.Application()
    app.add_routes([web.get("/{any:.*}", answer)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    log = {"file": str(fixtures / "facts" / "vllm-0.32.0-start.log")}
    here = worker("here", url=url, endpoints=(Endpoint(f"{url}/metrics"),), logs=(log,))
    away = worker("away", url="http://192.0.2.1:1", engine="sglang")
    facts = FactsBeside(Cluster(name="c", workers=(here, away)), WallClock())
    assert [(n.worker, n.code) for n in facts.notes] == [("here", "facts/0"), ("away", "facts/0")]
    found = await done(facts)
    assert found["here"]["attention_backend"] == "CPU_ATTN"
    assert "/metrics" not in asked
    assert "/version" in asked
    said = {(n.worker, n.why) for n in facts.notes}
    why = "command line, environment.*: no process that serves there runs on this machine"
    assert ("away", why) in said
    assert not any(key.startswith("reach.") for key in found["here"])
    await facts.aclose()
    await facts.aclose()
    await runner.cleanup()


async def test_a_restart_asks_again_but_not_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    class Reader:
        def __init__(self, *_args: object, **_more: object) -> None: ...

        async def collect(self) -> Collected:
            runs.append(1)
            return Collected({"d": {"n": str(len(runs))}})

    monkeypatch.setattr(beside, "LiveReader", Reader)
    clock = VirtualClock()
    facts = FactsBeside(Cluster(name="c", workers=(worker("d"),)), clock)
    assert await done(facts) == {"d": {"n": "1"}}
    facts.again()
    assert facts.take() == {}
    clock.advance(beside.AGAIN_S)
    assert await done(facts) == {"d": {"n": "2"}}
    await facts.aclose()


async def test_a_reader_that_fails_is_missing_data_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reader:
        def __init__(self, *_args: object, **_more: object) -> None: ...

        async def collect(self) -> Collected:
            raise ZeroDivisionError("odd machine")

    monkeypatch.setattr(beside, "LiveReader", Reader)
    facts = FactsBeside(Cluster(name="c", workers=(worker("d"),)), WallClock())
    async with asyncio.timeout(60):
        while "odd" not in facts.notes[0].why:
            facts.take()
            await asyncio.sleep(0.01)
    assert facts.notes[0].why == "configuration: ZeroDivisionError: odd machine"
    await facts.aclose()


async def test_the_scrape_source_brings_them_with_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reader:
        def __init__(self, *_args: object, **_more: object) -> None: ...

        async def collect(self) -> Collected:
            out = Collected({"d": {"block_size": "32"}})
            out.miss("d", "start log", "no log file of it is known")
            return out

    monkeypatch.setattr(beside, "LiveReader", Reader)
    gone = worker("d", endpoints=(Endpoint("http://127.0.0.1:1/metrics"),))
    source = ScrapeSource(Cluster(name="c", workers=(gone,)), interval_s=0.02, facts=True)
    async with asyncio.timeout(60):
        async for frame in source.frames():
            if frame.facts:
                break
    assert frame.facts == {"d": {"block_size": "32"}}
    (note,) = source.notes
    assert (note.why, note.fix) == (
        "start log: no log file of it is known",
        "name its log file in the inventory, under logs",
    )
    await source.aclose()


def test_what_all_of_a_pool_lack_is_said_once() -> None:
    cluster = Cluster(name="c", workers=(worker("a"), worker("b"), worker("c", "other")))
    unread = [Unread(w, k, "not here") for w in "abc" for k in ("host.*", "command line")] + [Unread("b", "x", "y")]
    assert [(n.worker, n.code, n.why) for n in as_notes(cluster, unread)] == [
        ("pool:decode", "facts/0", "host.*, command line: not here"),
        ("b", "facts/0", "x: y"),
        ("c", "facts/0", "host.*, command line: not here"),
    ]
