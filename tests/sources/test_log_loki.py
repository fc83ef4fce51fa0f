"""Lines of a Loki server, of which a double answers here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pdops.clock import WallClock
from pdops.model.cluster import Cluster, Role, Secret, Worker
from pdops.model.frame import LogLine
from pdops.sources.logs import LogReader
from pdops.sources.logs.batch import MAX_LINES
from pdops.sources.logs.loki import LokiLog, NotLinesError, parse


class LokiDouble:
    """Answers the query API of Loki as its documentation has it."""

    def __init__(self) -> None:
        self.status = 200
        self.entries: list[tuple[float, str]] = []
        self.labels: dict[str, str] = {"pod": "decode-0"}
        self.asked: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    async def query_range(self, request: web.Request) -> web.Response:
        self.asked.append(dict(request.query))
        self.headers.append(dict(request.headers))
        if self.status != 200:
            return web.Response(status=self.status, text="parse error")
        start, end, limit = (int(request.query[k]) for k in ("start", "end", "limit"))
        values = [[str(int(t * 1e9)), line] for t, line in self.entries if start <= int(t * 1e9) < end]
        values = sorted(values, reverse=True)[:limit]
        streams = [{"stream": self.labels, "values": values}] if values else []
        return web.json_response({"status": "success", "data": {"resultType": "streams", "result": streams}})


@asynccontextmanager
async def loki() -> AsyncIterator[LokiDouble]:
    server = LokiDouble()
    app = web.Application()
    app.router.add_get("/loki/api/v1/query_range", server.query_range)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


async def lines_of(source: LokiLog, enough: Callable[[list[str]], bool]) -> list[str]:
    found: list[str] = []
    async with asyncio.timeout(60):
        while not enough(found):
            found += [line.text for line in (await source.read()).lines]
            await asyncio.sleep(0.01)
    return found


def asking(url: str, **more: Any) -> LokiLog:
    given = {"secret": Secret(), "clock": WallClock(), "every_s": 0.02, **more}
    return LokiLog(url, '{pod="decode-0"}', **given)


async def test_new_lines_come_once_and_old_ones_do_not(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret-of-mine\n")
    async with loki() as server:
        server.entries = [(time.time() - 60, "ERROR old")]
        source = asking(server.url, secret=Secret(bearer_token_file=str(token)), tenant="llm")
        await lines_of(source, lambda _: len(server.asked) > 1)
        server.entries += [(time.time(), "ERROR one"), (time.time(), "ERROR one more")]
        found = await lines_of(source, lambda seen: len(seen) >= 2)
        count = len(server.asked)
        found += await lines_of(source, lambda _: len(server.asked) > count + 2)
        assert found == ["ERROR one", "ERROR one more"]
        assert source.trouble is None
        await source.aclose()
        await source.aclose()
    assert server.asked[0]["query"] == '{pod="decode-0"}'
    assert server.headers[0]["Authorization"] == "Bearer secret-of-mine"
    assert server.headers[0]["X-Scope-OrgID"] == "llm"


async def test_a_stream_that_is_marked_as_errors_needs_no_word_in_the_line() -> None:
    async with loki() as server:
        server.labels["detected_level"] = "error"
        entry = {"loki": server.url, "query": '{pod="decode-0"}'}
        worker = Worker(id="d", role=Role.DECODE, pool="d", logs=(entry,))
        source = LogReader(Cluster(name="t", workers=(worker,)))
        found: list[LogLine] = []
        async with asyncio.timeout(60):
            await source.read(time.time())
            server.entries = [(time.time() + 0.5, "it failed, token=abc?sig=abc")]
            while not found:
                found += await source.read(time.time())
                await asyncio.sleep(0.05)
        await source.aclose()
    assert [(line.worker, line.line) for line in found] == [("d", "it failed, token=abc?sig=[redacted]")]


@pytest.mark.parametrize(
    ("status", "why", "fix"),
    [(400, "HTTP 400", "check the query"), (401, "HTTP 401", "bearer_token_file"), (500, "HTTP 500", "Loki is up")],
)
async def test_a_server_that_refuses_is_said_and_taken_back(status: int, why: str, fix: str) -> None:
    async with loki() as server:
        server.status = status
        source = asking(server.url)
        await lines_of(source, lambda _: source.trouble is not None)
        assert source.trouble is not None
        assert source.trouble.why == why
        assert fix in source.trouble.fix
        server.status, server.entries = 200, [(time.time(), "x")]
        await lines_of(source, bool)
        assert source.trouble is None
        await source.aclose()


async def test_a_query_that_finds_nothing_is_said() -> None:
    async with loki() as server:
        source = asking(server.url)
        await lines_of(source, lambda _: source.trouble is not None)
        assert source.trouble is not None
        assert source.trouble.why == "no line of the last hour matches"
        await source.aclose()


async def test_more_lines_than_are_taken_are_said_and_their_number_only_as_far_as_it_is_known() -> None:
    async with loki() as server:
        worker = Worker(id="d", role=Role.DECODE, pool="d", logs=({"loki": server.url, "query": '{pod="decode-0"}'},))
        source = LogReader(Cluster(name="t", workers=(worker,)))
        await source.read(time.time())
        now = time.time()
        server.entries = [(now + n / 1e6, f"ERROR {n}") for n in range(3 * MAX_LINES)]
        async with asyncio.timeout(60):
            while not (found := await source.read(time.time())):
                await asyncio.sleep(0.01)
        await source.aclose()
    assert found[0].line == "[at least 1 log lines were left out]"
    assert len(found) == MAX_LINES + 1
    assert found[-1].line == f"ERROR {3 * MAX_LINES - 1}"


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"data": {}}, {"data": {"result": 1}}, {"data": {"resultType": "matrix", "result": []}}],
)
def test_what_is_no_answer_with_lines_is_told(document: Any) -> None:
    with pytest.raises(NotLinesError):
        parse(document)


def test_entries_that_cannot_be_read_are_left_out() -> None:
    values = [["1", "a"], ["x", "b"], [1, "c"], ["2"], "no", ["3", 4], ["9" * 30, "d"]]
    streams = [{"stream": None, "values": values}, {"values": None}, 5]
    assert parse({"data": {"resultType": "streams", "result": streams}}) == [(1, "a", False)]
