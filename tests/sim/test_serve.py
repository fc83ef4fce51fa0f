"""A simulation on loopback, read by pdops as it reads real programs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from pdops.clock import VirtualClock, WallClock
from pdops.errors import UsageError
from pdops.model.cluster import Cluster
from pdops.model.frame import Frame, Scrape
from pdops.sim.instruments import EPOCH_S, Instruments
from pdops.sim.page_server import PageServer
from pdops.sim.serve import Player, Show, serve
from pdops.sources.inventory import load_inventory
from pdops.sources.scrape import ScrapeSource
from tests.sim.doubles import DoubleSimulation


@asynccontextmanager
async def shown(
    simulation: DoubleSimulation, folder: Path, speed: float = 10.0
) -> AsyncIterator[tuple[Cluster, PageServer]]:
    """Serve it, and give the cluster of its inventory."""
    stop, ready = asyncio.Event(), asyncio.Event()
    servers: list[PageServer] = []

    def begun(server: PageServer) -> None:
        servers.append(server)
        ready.set()

    path = folder / "pdops.yaml"
    task = asyncio.create_task(serve(simulation, Show(speed=speed, inventory=path, logs=folder), stop, begun))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield load_inventory(path).cluster, servers[0]
    finally:
        stop.set()
        await task


async def read_until(cluster: Cluster, enough: Callable[[list[Frame]], bool]) -> list[Frame]:
    """Scrape until something is seen."""
    source = ScrapeSource(cluster, interval_s=0.2, timeout_s=1.0)
    frames: list[Frame] = []
    async with asyncio.timeout(30):
        async for frame in source.frames():
            frames.append(frame)
            if enough(frames):
                break
    await source.aclose()
    return frames


def scrapes(frame: Frame) -> dict[tuple[str, str], Scrape]:
    return {(s.worker, s.engine): s for s in frame.scrapes}


def counted(frame: Frame, worker: str, series: str) -> float | None:
    for scrape in frame.scrapes:
        if scrape.worker == worker and scrape.layout is not None and scrape.values is not None:
            for name, value in zip(scrape.layout.series, scrape.values, strict=True):
                if name.startswith(series):
                    return float(value)
    return None


async def test_every_page_reaches_pdops_as_the_engine_it_is(tmp_path: Path) -> None:
    simulation = DoubleSimulation()
    async with shown(simulation, tmp_path) as (cluster, _):
        frames = await read_until(cluster, lambda seen: all(s.error is None for s in seen[-1].scrapes))
        facts = await read_until(
            cluster, lambda seen: any("version" in f.get("decode-0", {}) for f in (x.facts for x in seen))
        )
    assert set(scrapes(frames[-1])) == {
        ("prefill-0", "vllm"),
        ("prefill-0", "node"),
        ("decode-0", "vllm"),
        ("router-0", "pdops_router"),
    }
    assert facts
    own = simulation.instruments["decode-0"].scrape(0.0)
    full = next(s for f in frames for s in f.scrapes if s.worker == "decode-0" and s.full and s.layout is not None)
    assert own.layout is not None
    assert full.layout is not None
    assert full.layout.series == own.layout.series
    assert (cluster.model, cluster.kv_bytes_per_token, cluster.slo.itl_s) == ("double-1b", 1024.0, 0.05)
    assert [w.zone for w in cluster.workers] == ["az1", "az2", None]


async def test_time_passes_at_the_speed_that_was_asked_for_and_start_times_are_the_readers(tmp_path: Path) -> None:
    wall = WallClock()
    began_s = wall.now()
    async with shown(DoubleSimulation(), tmp_path, speed=60.0) as (cluster, _):
        name = "vllm:prompt_tokens_total"
        frames = await read_until(cluster, lambda seen: (counted(seen[-1], "decode-0", name) or 0) >= 30_000)
        start_s = counted(frames[0], "decode-0", "process_start_time_seconds")
    assert start_s is not None
    assert began_s - 1 <= start_s <= wall.now()
    assert not any(f.events for f in frames)


async def test_a_filtered_page_is_smaller_behind_the_slash_only(tmp_path: Path) -> None:
    async with shown(DoubleSimulation(), tmp_path) as (_, server), aiohttp.ClientSession() as session:
        sizes = []
        for path in (
            "metrics",
            "metrics?name[]=vllm:num_requests_running",
            "metrics/?name[]=vllm:num_requests_running",
        ):
            async with session.get(f"{server.url('decode-0')}/{path}") as answer:
                sizes.append(await answer.text())
    assert "vllm:prompt_tokens_total" in sizes[1]
    assert [line for line in sizes[2].splitlines() if not line.startswith("#")] == [
        'vllm:num_requests_running{engine="0",model_name="double-1b"} 0.0'
    ]
    assert len(sizes[0]) > 10 * len(sizes[2])


async def test_a_killed_worker_refuses_connections_and_comes_back_at_its_address(tmp_path: Path) -> None:
    simulation = DoubleSimulation()
    async with shown(simulation, tmp_path) as (cluster, server):
        await read_until(cluster, lambda seen: all(s.error is None for s in seen[-1].scrapes))
        simulation.down.add("decode-0")
        frames = await read_until(cluster, lambda seen: any(e.worker == "decode-0" for e in seen[-1].events))
        error = scrapes(frames[-1])["decode-0", "vllm"].error
        url = server.url("decode-0")
        simulation.down.clear()
        await read_until(cluster, lambda seen: scrapes(seen[-1])["decode-0", "vllm"].error is None)
        assert server.url("decode-0") == url
    assert error is not None
    assert error.startswith("connection refused")


async def test_a_worker_that_joins_is_served_and_one_that_leaves_is_gone() -> None:
    instruments = dict(DoubleSimulation().instruments)
    server = PageServer(instruments, model="m")
    await server.open()
    try:
        instruments["decode-9"] = Instruments("decode-9", "vllm")
        await server.follow()
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{server.url('decode-9')}/metrics") as answer:
                assert answer.status == 200
            left = instruments.pop("decode-9")
            await server.follow()
            async with session.get(f"{server.url('decode-9')}/metrics") as answer:
                assert answer.status == 404
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.get(f"{server.url('decode-9')}/metrics")
            instruments["decode-9"] = left
            await server.follow()
            async with session.get(f"{server.url('decode-9')}/metrics") as answer:
                assert answer.status == 200
    finally:
        await server.aclose()


async def test_a_frozen_worker_takes_connections_and_says_nothing(tmp_path: Path) -> None:
    simulation = DoubleSimulation()
    async with shown(simulation, tmp_path) as (cluster, _):
        simulation.hung.add("decode-0")
        frames = await read_until(
            cluster, lambda seen: "no answer within" in (scrapes(seen[-1])["decode-0", "vllm"].error or "")
        )
        assert scrapes(frames[-1])["prefill-0", "vllm"].error is None
        simulation.hung.clear()
        await read_until(cluster, lambda seen: scrapes(seen[-1])["decode-0", "vllm"].error is None)


async def test_log_lines_stand_in_the_files_the_inventory_names(tmp_path: Path) -> None:
    simulation = DoubleSimulation()
    async with shown(simulation, tmp_path) as (cluster, _):
        reading = asyncio.create_task(read_until(cluster, lambda seen: any(f.logs for f in seen)))
        while not reading.done():
            simulation.lines.append("ERROR NIXL_ERR_REMOTE_DISCONNECT")
            await asyncio.sleep(0.1)
        frames = await reading
    assert {(line.worker, line.line) for f in frames for line in f.logs} == {
        ("decode-0", "ERROR NIXL_ERR_REMOTE_DISCONNECT")
    }


async def test_requests_are_told_that_nothing_answers_them(tmp_path: Path) -> None:
    async with (
        shown(DoubleSimulation(), tmp_path) as (_, server),
        aiohttp.ClientSession() as session,
        session.post(f"{server.url('router-0')}/v1/completions", json={"prompt": "x"}) as answer,
    ):
        said = await answer.json()
    assert answer.status == 501
    assert "simulated" in said["error"]["message"]


async def test_an_engine_says_the_version_that_was_asked_for(tmp_path: Path) -> None:
    simulation = DoubleSimulation()
    prefill, *others = simulation.cluster.workers
    workers = (replace(prefill, version="0.31.0"), *others)
    simulation.cluster = replace(simulation.cluster, workers=workers)
    async with shown(simulation, tmp_path) as (_, server), aiohttp.ClientSession() as session:
        async with session.get(f"{server.url('prefill-0')}/version") as answer:
            assert await answer.json() == {"version": "0.31.0"}
        async with session.get(f"{server.url('router-0')}/version") as answer:
            assert answer.status == 404


async def test_a_port_that_is_taken_is_an_error_with_its_address() -> None:
    first = PageServer(DoubleSimulation().instruments, model="m")
    await first.open()
    port = int(first.url("decode-0").rpartition(":")[2])
    second = PageServer(DoubleSimulation().instruments, model="m", ports={"decode-0": port})
    try:
        with pytest.raises(UsageError, match=f"127.0.0.1:{port}: decode-0"):
            await second.open()
    finally:
        await second.aclose()
        await first.aclose()


class _SlowSimulation(DoubleSimulation):
    """Needs two seconds of the clock for one virtual second."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def advance(self, to_s: float) -> None:
        self._clock.advance(2.0 * (to_s - self.now_s))
        super().advance(to_s)


async def test_a_machine_that_is_too_slow_lets_time_go_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock(1_000.0)
    simulation = _SlowSimulation(clock)
    player = Player(simulation, 1.0, clock)
    starts = {player.wall(EPOCH_S)}
    for _ in range(40):
        await clock.sleep(1.0)
        await player.step()
        starts.add(player.wall(EPOCH_S))
    behind_s = clock.monotonic() - player.now_s
    assert [r.message for r in caplog.records if "does not keep up" in r.message]
    assert player.wall(EPOCH_S + player.now_s) == pytest.approx(1_000.0 + clock.monotonic(), abs=7.0)
    assert behind_s > 10.0
    assert starts == {1_000.0}


@pytest.mark.parametrize("speed", [0.0, -1.0, 61.0, float("nan")])
def test_a_speed_out_of_range_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="speed"):
        Player(DoubleSimulation(), speed, VirtualClock())
