"""Scraping real sockets on loopback: good pages, every kind of bad one, and what the bad ones do to the good ones."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web
from yarl import URL

from pdops.clock import VirtualClock
from pdops.errors import InventoryError
from pdops.model.cluster import Cluster, Endpoint, Role, Secret, Worker
from pdops.model.frame import EventKind, Frame, Scrape
from pdops.sources import fetch
from pdops.sources.exposition import Parser
from pdops.sources.pages import targets_of
from pdops.sources.scrape import ScrapeSource

TICK_S = 0.05
Frames = Callable[..., Awaitable[list[Frame]]]
Reader = Callable[[str], bytes]
DECODE = "vllm-0.32.0-nixl/decode-load-c4.prom"
LATER = "vllm-0.32.0-nixl/decode-overload-after.prom"


class EngineDouble:
    """A page of an engine that serves recorded bytes: all of it at /metrics, by name at /metrics/ as vLLM does."""

    def __init__(self, body: bytes, *, selective: str = "no", version: str | None = None) -> None:
        self.body = body
        self.selective = selective
        self.version = version
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.status = 200
        self.url = ""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/metrics", self._full)
        app.router.add_get("/metrics/", self._fast)
        app.router.add_get("/version", self._version)
        app.router.add_get("/server_info", self._server_info)
        return app

    async def _full(self, request: web.Request) -> web.Response:
        self.asked.append("full")
        self.headers.append(dict(request.headers))
        await self.gate.wait()
        return web.Response(body=self.body, status=self.status, content_type="text/plain")

    async def _fast(self, request: web.Request) -> web.Response:
        self.asked.append("fast")
        if self.selective == "no":
            raise web.HTTPNotFound
        if self.selective == "redirect":
            raise web.HTTPTemporaryRedirect("/metrics")
        if self.selective == "ignored":
            return web.Response(body=self.body, content_type="text/plain")
        names = {name.encode() for name in request.query.getall("name[]")}
        if self.selective == "partial":
            names.discard(b"vllm:num_requests_waiting")
        lines = [ln for ln in self.body.splitlines(keepends=True) if ln.partition(b"{")[0].partition(b" ")[0] in names]
        return web.Response(body=b"".join(lines), content_type="text/plain")

    async def _version(self, request: web.Request) -> web.Response:
        self.asked.append("version")
        if self.version is None:
            raise web.HTTPNotFound
        return web.json_response({"version": self.version})

    async def _server_info(self, request: web.Request) -> web.Response:
        self.asked.append("server_info")
        config = {"cache_config": {"block_size": 32}, "api_key": "hunter2", "max_num_batched_tokens": 2048}
        return web.json_response({"vllm_config": config, "vllm_env": {"HF_TOKEN": "hf_x", "VLLM_PORT": None}})


@asynccontextmanager
async def serving(double: EngineDouble, tls: ssl.SSLContext | None = None) -> AsyncIterator[EngineDouble]:
    runner = web.AppRunner(double.app(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    double.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield double
    finally:
        double.gate.set()
        await runner.cleanup()


@asynccontextmanager
async def raw(answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    """Serve bytes as they are; the address of the server."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await answer(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def saying(data: bytes) -> AbstractAsyncContextManager[str]:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return raw(answer)


def worker(name: str, url: str, **more: object) -> Worker:
    return Worker(id=name, role=Role.DECODE, pool="decode", url=url, **more)  # type: ignore[arg-type]


def cluster(*workers: Worker) -> Cluster:
    return Cluster(name="test", workers=workers)


async def until(source: ScrapeSource, enough: Callable[[list[Frame]], bool], most: int = 200) -> list[Frame]:
    """Return the frames up to the one that is enough."""
    seen: list[Frame] = []
    try:
        async for frame in source.frames():
            seen.append(frame)
            if enough(seen):
                return seen
            assert len(seen) < most, [s.error for s in frame.scrapes]
    finally:
        await source.aclose()
    raise AssertionError("the source ended")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "CONNECT_TIMEOUT_S", 30.0)


def scraping(
    *workers: Worker, interval_s: float = TICK_S, timeout_s: float = 30.0, grace_s: float = 30.0, **more: object
) -> ScrapeSource:
    """A source whose frames wait for every page that can come, so that a busy machine changes nothing."""
    return ScrapeSource(cluster(*workers), interval_s, timeout_s, grace_s=grace_s, **more)  # type: ignore[arg-type]


def of(frames: list[Frame], name: str) -> list[Scrape]:
    return [scrape for frame in frames for scrape in frame.scrapes if scrape.worker == name]


def free_url() -> str:
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}"


async def test_a_page_is_read_detected_and_bound_to_its_endpoint(page: Reader) -> None:
    async with serving(EngineDouble(page(DECODE))) as engine:
        (frame,) = await until(scraping(worker("d", engine.url)), lambda seen: len(seen) == 1)
    (scrape,) = frame.scrapes
    expected = Parser().parse(page(DECODE))
    assert (scrape.worker, scrape.engine, scrape.endpoint) == ("d", "vllm", engine.url + "/metrics")
    assert scrape.layout is not None
    assert scrape.layout.series == expected.layout.series
    np.testing.assert_array_equal(scrape.values, expected.values)
    assert scrape.full
    assert scrape.error is None
    assert scrape.size_bytes == len(page(DECODE))
    assert scrape.at_s <= frame.at_s
    assert engine.headers[0]["Accept"] == "text/plain;version=0.0.4"
    assert engine.headers[0]["Accept-Encoding"] == "identity"


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "connection closed without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\na 1\n", "answer broke off"),
        (CHUNKED + b"4\r\na 1\n\r\n", "answer broke off"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", "HTTP 500"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", "HTTP 302 (redirects are not followed)"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "not an exposition: it is HTML or XML"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "not an exposition: it is JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "not an exposition: it is empty"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n",
            "answer is longer than 1048576 bytes; reading stopped",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd", "answer broke off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nup 1\n", "not an exposition: no line of it is a sample"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nup 1\n", "no family on the page belongs to a known engine"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "answer is not HTTP"),
    ],
)
async def test_a_bad_answer_is_said_and_its_neighbour_is_not_touched(data: bytes, error: str, page: Reader) -> None:
    async with serving(EngineDouble(page(DECODE))) as engine, saying(data) as bad:
        source = scraping(worker("bad", bad), worker("good", engine.url), max_body_bytes=1024 * 1024)
        frames = await until(source, lambda seen: len(seen) == 4)
    first, *later = of(frames, "bad")
    assert first.error == error
    assert (first.layout, first.values) == (None, None)
    assert all(scrape.error is not None for scrape in later)
    assert {scrape.error for scrape in of(frames, "good")} == {None}
    assert all({scrape.worker for scrape in frame.scrapes} == {"bad", "good"} for frame in frames)


async def test_an_unreachable_worker_is_down_once_and_is_seen_within_5_s_of_its_return(page: Reader) -> None:
    url = free_url()
    source = scraping(worker("d", url, engine="vllm"), interval_s=1.0, clock=VirtualClock(1000.0))
    returned_s = 0.0
    seen: list[Frame] = []
    async with contextlib.AsyncExitStack() as stack:
        async for frame in source.frames():
            seen.append(frame)
            if len(seen) == 20:
                returned_s = frame.at_s
                runner = web.AppRunner(EngineDouble(page(DECODE)).app())
                await runner.setup()
                stack.push_async_callback(runner.cleanup)
                await web.TCPSite(runner, "127.0.0.1", int(url.rpartition(":")[2])).start()
            if frame.scrapes[0].error is None:
                break
            assert len(seen) < 100
        await source.aclose()
    assert returned_s < seen[-1].at_s <= returned_s + 5.0
    events = [e for frame in seen for e in frame.events]
    assert [(e.kind, e.worker, e.detail, e.t_s) for e in events] == [
        (EventKind.DOWN, "d", "connection refused", 1000.0)
    ]
    assert seen[10].events == tuple(events)
    waits = [s.error for s in of(seen, "d") if s.error and "next try in" in s.error]
    assert len(waits) >= 8
    assert all(w.startswith("connection refused; next try in ") for w in waits)


async def test_a_slow_target_holds_up_nobody_and_its_late_answer_keeps_its_own_time(page: Reader) -> None:
    async with serving(EngineDouble(page(DECODE))) as good, serving(EngineDouble(page(DECODE))) as slow:
        slow.gate.clear()
        source = scraping(worker("slow", slow.url), worker("good", good.url), interval_s=0.2, grace_s=0.1)

        def enough(seen: list[Frame]) -> bool:
            if len(seen) == 5:
                slow.gate.set()
            return any(s.error is None for s in of(seen, "slow"))

        frames = await until(source, enough)
    assert len(frames) > 5
    waiting = of(frames[:5], "slow")
    assert len(waiting) == 5
    assert all(s.error is not None and s.error.startswith("no answer yet, ") for s in waiting)
    assert sum(s.error is None for s in of(frames, "good")) >= len(frames) - 2
    late = next(s for s in of(frames, "slow") if s.error is None)
    assert frames[4].at_s < late.at_s < frames[-1].at_s
    assert slow.asked.count("full") <= 2


async def test_slow_targets_do_not_keep_the_places_of_the_others(page: Reader) -> None:
    async with serving(EngineDouble(page(DECODE))) as good, serving(EngineDouble(page(DECODE))) as slow:
        slow.gate.clear()
        many = [worker(f"slow{n}", slow.url) for n in range(6)]
        source = scraping(*many, worker("good", good.url), grace_s=0.02, at_once=2, hold_s=0.01)
        frames = await until(source, lambda seen: any(s.error is None for s in of(seen, "good")), 2_000)
    assert all(s.error is not None for n in range(6) for s in of(frames, f"slow{n}"))


async def test_a_target_that_had_no_turn_is_not_called_down(page: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdops.sources.events.NEVER_S", 0.0)
    async with serving(EngineDouble(page(DECODE))) as good, serving(EngineDouble(page(DECODE))) as slow:
        slow.gate.clear()
        source = scraping(
            worker("slow", slow.url), worker("good", good.url), grace_s=0.02, at_once=1, hold_s=60.0, timeout_s=60.0
        )
        frames = await until(source, lambda seen: len(seen) == 8)
    assert all((s.error or "").startswith("not asked yet, pdops is behind, ") for s in of(frames, "good"))
    assert {e.worker for frame in frames for e in frame.events} == {"slow"}


async def test_a_target_that_never_answers_runs_into_its_timeout(page: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdops.sources.events.NEVER_S", 0.0)
    async with serving(EngineDouble(page(DECODE))) as engine:
        engine.gate.clear()
        source = scraping(worker("d", engine.url), timeout_s=0.2, grace_s=0.02)
        frames = await until(source, lambda seen: any("within" in (s.error or "") for s in of(seen, "d")))
    assert of(frames, "d")[-1].error == "no answer within 0.2 s"
    downs = [e for frame in frames for e in frame.events]
    assert [e.kind for e in downs] == [EventKind.DOWN]
    assert downs[0].detail is not None
    assert downs[0].detail.startswith("no answer yet")


async def test_an_endless_answer_is_cut_at_the_cap() -> None:
    sent = 0
    closed = asyncio.Event()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(CHUNKED)
        chunk = b"10000\r\n" + (b"vllm:num_requests_running 1\n" * 3000)[:65536] + b"\r\n"
        try:
            while sent < 200 * 1024 * 1024:
                writer.write(chunk)
                await writer.drain()
                sent += len(chunk)
        finally:
            closed.set()

    cap = 1024 * 1024
    async with raw(answer) as url:
        source = scraping(worker("d", url), max_body_bytes=cap)
        frames = await until(source, lambda seen: "longer" in (of(seen, "d")[-1].error or ""))
        await asyncio.wait_for(closed.wait(), 5)
    assert of(frames, "d")[-1].error == f"answer is longer than {cap} bytes; reading stopped"
    assert cap < source.fetcher.bytes_read < 2 * cap
    assert sent < 32 * 1024 * 1024


def packed(body: bytes) -> bytes:
    data = gzip.compress(body)
    return b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(data) + data


async def test_a_packed_page_is_unpacked_and_the_cap_counts_what_comes_out(page: Reader) -> None:
    cap = 1024 * 1024
    async with saying(packed(page(DECODE))) as good, saying(packed(page(DECODE) * 1_000)) as bomb:
        source = scraping(worker("good", good), worker("bomb", bomb), max_body_bytes=cap)
        frames = await until(source, lambda seen: len(seen) == 1)
    assert of(frames, "good")[0].size_bytes == len(page(DECODE))
    assert "longer than" in (of(frames, "bomb")[0].error or "")
    assert source.fetcher.bytes_read < 40 * cap


@pytest.mark.parametrize(
    ("url", "local"),
    [("http://127.0.0.1:1/", True), ("http://[::1]/", True), ("http://localhost/", True), ("http://10.0.0.1/", False)],
)
def test_only_far_pages_are_asked_to_be_packed(url: str, local: bool) -> None:
    assert fetch.is_loopback(URL(url)) is local


async def test_another_engine_behind_the_same_address_is_noticed_and_never_mixed(page: Reader) -> None:
    async with serving(EngineDouble(page(DECODE))) as engine:
        source = scraping(worker("d", engine.url))

        def enough(seen: list[Frame]) -> bool:
            if len(seen) == 3:
                engine.body = page("other-engines/mooncake_master_active.prom")
            return any(frame.events for frame in seen)

        frames = await until(source, enough)
    (event,) = frames[-1].events
    assert (event.kind, event.worker, event.detail) == (
        EventKind.CONFIG_CHANGE,
        "d",
        "engine changed from vllm to mooncake",
    )
    for scrape in of(frames, "d"):
        assert scrape.layout is not None
        own = [s for s in scrape.layout.series if s.startswith("vllm:")]
        assert bool(own) == (scrape.engine == "vllm")
    assert of(frames, "d")[-1].engine == "mooncake"


async def test_a_page_of_another_engine_than_the_inventory_says_is_an_error_not_a_down(page: Reader) -> None:
    async with serving(EngineDouble(page("other-engines/nixl_1.5.1_decode.prom"))) as engine:
        source = scraping(worker("d", engine.url, engine="vllm"))
        frames = await until(source, lambda seen: len(seen) == 6)
    assert {s.error for s in of(frames, "d")} == {"the page is of engine nixl, the inventory says vllm"}
    assert not [e for frame in frames for e in frame.events]


async def test_the_fast_loop_asks_for_few_families_each_tick_and_all_of_them_now_and_then(page: Reader) -> None:
    async with serving(EngineDouble(page(DECODE), selective="yes")) as engine:
        clock = VirtualClock()
        source = scraping(worker("d", engine.url), interval_s=1.0, full_every_s=6.0, clock=clock)

        def enough(seen: list[Frame]) -> bool:
            if len(seen) == 3:
                engine.body = page(LATER)
            return len(seen) == 16

        frames = await until(source, enough)
    full = [s.full for s in of(frames, "d")]
    assert [n for n, whole in enumerate(full) if whole] == [0, 6, 12]
    fast = [s for s in of(frames, "d") if not s.full]
    assert len({id(s.layout) for s in fast}) == 1
    assert all(s.size_bytes < 5_000 for s in fast)
    layout = fast[-1].layout
    assert layout is not None
    assert not any("_bucket{" in series for series in layout.series)
    values = dict(zip(layout.series, fast[-1].values.tolist(), strict=True))  # type: ignore[union-attr]
    assert values['vllm:num_preemptions_total{engine="0",model_name="tiny"}'] == 29


@pytest.mark.parametrize("selective", ["no", "redirect", "ignored", "partial"])
async def test_a_server_without_the_fast_page_is_asked_for_it_once(selective: str, page: Reader) -> None:
    async with serving(EngineDouble(page(DECODE), selective=selective)) as engine:
        source = scraping(worker("d", engine.url))
        frames = await until(source, lambda seen: len(seen) == 6)
    assert engine.asked.count("fast") == 1
    assert [(s.full, s.error) for s in of(frames, "d")] == [(True, None)] * 6


async def test_a_fast_page_that_goes_away_gives_way_to_the_full_one_at_the_same_tick(page: Reader) -> None:
    async with serving(EngineDouble(page(DECODE), selective="yes")) as engine:
        source = scraping(worker("d", engine.url))

        def enough(seen: list[Frame]) -> bool:
            if len(seen) == 3:
                engine.selective = "no"
            return len(seen) == 6

        frames = await until(source, enough)
    assert [s.full for s in of(frames, "d")] == [True, False, False, True, True, True]
    assert {s.error for s in of(frames, "d")} == {None}


async def test_a_restart_is_noticed_on_the_fast_page_and_the_engine_is_asked_again(page: Reader) -> None:
    before, after = page("link-drills/s3-cut-before.p.prom"), page("link-drills/s5-newP-before.p.prom")
    async with serving(EngineDouble(before, selective="yes", version="0.32.0")) as engine:
        source = scraping(worker("p", engine.url))

        def enough(seen: list[Frame]) -> bool:
            if len(seen) == 5:
                engine.body, engine.version = after, "0.33.0"
            return any(f.facts.get("p", {}).get("version") == "0.33.0" for f in seen)

        frames = await until(source, enough)
    events = [e for frame in frames for e in frame.events]
    assert [(e.kind, e.worker, e.detail) for e in events] == [
        (EventKind.RESTART, "p", "process start time changed"),
    ]
    versions = [f.facts["p"]["version"] for f in frames if "version" in f.facts.get("p", {})]
    assert versions == ["0.32.0", "0.33.0"]
    assert engine.asked.count("version") == 2
    assert frames[0].facts["p"]["block_size"] == "32"


async def test_server_info_is_read_only_when_allowed_and_without_secrets(page: Reader) -> None:
    async with serving(EngineDouble(page(DECODE), version="0.32.0")) as engine:
        await until(scraping(worker("d", engine.url)), lambda seen: len(seen) == 4)
        assert "server_info" not in engine.asked
        source = scraping(worker("d", engine.url), facts_from_server_info=True)
        frames = await until(source, lambda seen: any("max_num_batched_tokens" in f.facts.get("d", {}) for f in seen))
    facts = {k: v for frame in frames for k, v in frame.facts.get("d", {}).items()}
    assert facts["max_num_batched_tokens"] == "2048"
    assert facts["VLLM_PORT"] == "null"
    assert not {"api_key", "HF_TOKEN"} & facts.keys()


async def test_a_worker_with_several_pages_gives_a_scrape_of_each(page: Reader) -> None:
    nixl = EngineDouble(page("other-engines/nixl_1.5.1_decode.prom"))
    async with serving(EngineDouble(page(DECODE))) as engine, serving(nixl):
        pages = (Endpoint(engine.url + "/metrics"), Endpoint(nixl.url + "/metrics", "nixl"))
        source = scraping(worker("d", engine.url, endpoints=pages))
        (frame,) = await until(source, lambda seen: len(seen) == 1)
    assert {(s.worker, s.engine, s.endpoint) for s in frame.scrapes} == {
        ("d", "vllm", engine.url + "/metrics"),
        ("d", "nixl", nixl.url + "/metrics"),
    }


async def test_the_wall_clock_may_step_back_and_time_goes_on(page: Reader) -> None:
    clock = VirtualClock(1_000_000.0)
    async with serving(EngineDouble(page(DECODE))) as engine:
        source = scraping(worker("d", engine.url), interval_s=1.0, clock=clock)

        def enough(seen: list[Frame]) -> bool:
            if len(seen) == 3:
                clock.step_wall(-3600.0)
            return len(seen) == 6

        frames = await until(source, enough)
    times = [frame.at_s for frame in frames]
    assert times == [1_000_000.0 + n for n in range(6)]
    assert {s.error for s in of(frames, "d")} == {None}


async def test_a_reader_that_is_too_slow_loses_ticks_not_time(page: Reader) -> None:
    clock = VirtualClock(0.0)
    async with serving(EngineDouble(page(DECODE))) as engine:
        source = scraping(worker("d", engine.url), interval_s=1.0, clock=clock)

        def enough(seen: list[Frame]) -> bool:
            clock.advance(2.5 if len(seen) == 2 else 0.0)
            return len(seen) == 4

        frames = await until(source, enough)
    assert [frame.at_s for frame in frames] == [0.0, 1.0, 4.0, 5.0]


async def test_secrets_are_read_at_use_and_a_missing_one_is_said(page: Reader, tmp_path: Path) -> None:
    token = tmp_path / "token"
    async with serving(EngineDouble(page(DECODE))) as engine:
        secret = Secret(bearer_token_file=str(token))
        source = scraping(worker("d", engine.url, secret=secret))

        def enough(seen: list[Frame]) -> bool:
            if len(seen) == 2:
                token.write_text("first\n")
            if any(h.get("Authorization") == "Bearer first" for h in engine.headers):
                token.write_text("second\n")
            return any(h.get("Authorization") == "Bearer second" for h in engine.headers)

        frames = await until(source, enough)
        assert of(frames, "d")[0].error == f"bearer_token_file {token} cannot be read: No such file or directory"
        engine.headers.clear()
        password = tmp_path / "password"
        password.write_text("pw")
        basic = Secret(username="me", password_file=str(password))
        await until(scraping(worker("d", engine.url, secret=basic)), lambda seen: len(seen) == 1)
    assert engine.headers[0]["Authorization"] == "Basic bWU6cHc="


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
async def test_a_private_certificate_is_accepted_only_with_its_authority(page: Reader, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    async with serving(EngineDouble(page(DECODE)), context) as engine:
        trusted = worker("trusted", engine.url, secret=Secret(ca=str(cert)))
        stranger = worker("stranger", engine.url)
        lost = worker("lost", engine.url, secret=Secret(ca=str(tmp_path / "none.pem")))
        frames = await until(scraping(trusted, stranger, lost), lambda seen: len(seen) == 1)
    assert of(frames, "trusted")[0].error is None
    assert (of(frames, "stranger")[0].error or "").startswith("TLS certificate is not accepted: ")
    assert of(frames, "lost")[0].error == "No such file or directory"


async def test_log_lines_of_a_worker_come_with_the_frames(page: Reader, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("ERROR old\n")
    async with serving(EngineDouble(page(DECODE))) as engine:
        source = scraping(worker("d", engine.url, logs=({"file": str(log)},)))

        def enough(seen: list[Frame]) -> bool:
            if len(seen) == 2:
                with log.open("a") as file:
                    file.write("INFO fine\nWARNING Bearer abcdefgh expired\n")
            return any(frame.logs for frame in seen)

        frames = await until(source, enough)
    assert [(line.worker, line.line) for line in frames[-1].logs] == [("d", "WARNING Bearer [redacted] expired")]
    assert frames[-1].logs[0].t_s == frames[-1].at_s


async def test_closing_twice_and_in_the_middle_leaves_nothing_running(page: Reader) -> None:
    async with serving(EngineDouble(page(DECODE))) as engine:
        engine.gate.clear()
        source = scraping(worker("d", engine.url), grace_s=0.02)
        frames = source.frames()
        await anext(frames)
        await source.aclose()
        await source.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(frames)
        assert [t for t in asyncio.all_tasks() if "scrape" in repr(t.get_coro())] == []


def test_a_cluster_without_addresses_is_refused() -> None:
    with pytest.raises(InventoryError):
        ScrapeSource(cluster(Worker(id="d", role=Role.DECODE, pool="decode")))


def test_default_addresses_follow_the_engine() -> None:
    clock = VirtualClock()
    found = targets_of(
        cluster(
            worker("a", "http://h:1/"),
            worker("b", "http://h:2", engine="trtllm"),
            worker("c", "http://h:3", engine="vllm", endpoints=(Endpoint("http://h:3/m"),)),
        ),
        clock=clock,
        interval_s=1.0,
        now=clock.now,
    )
    assert [(t.endpoint, t.declared) for t in found] == [
        ("http://h:1/metrics", None),
        ("http://h:2/prometheus/metrics", "trtllm"),
        ("http://h:3/m", "vllm"),
    ]


async def test_a_page_that_breaks_off_without_saying_its_length_is_told_from_a_whole_one(page: Reader) -> None:
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    whole = page(DECODE)
    cut = whole[: whole.rindex(b"\n", 0, -1) - 2]
    async with saying(head + cut) as bad, saying(head + whole) as good:
        frames = await until(scraping(worker("bad", bad), worker("good", good)), lambda seen: len(seen) == 1)
    assert [s.malformed for s in of(frames, "bad")] == [1]
    assert [s.malformed for s in of(frames, "good")] == [0]
