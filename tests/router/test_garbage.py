"""Engines that answer what no engine should."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import pytest

from pdops.model.cluster import Role
from pdops.router.settings import WorkerSpec
from tests.router.doubles import Bench, bench

DEEP = b"[" * 200_000
PLAIN = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nConnection: close\r\n\r\n%b"


@contextlib.asynccontextmanager
async def says(b: Bench, role: Role, answer: bytes) -> AsyncIterator[None]:
    """Put a worker that answers these bytes, whatever it is asked, in the place of the role's double."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        health = b" /health " in head
        if length := re.search(rb"(?i)content-length: (\d+)", head):
            await reader.readexactly(int(length[1]))
        running.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError):
            writer.write(PLAIN % (b"200 OK", b"text/plain", b"") if health else answer)
            await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    running: set[asyncio.Task[None] | None] = set()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        b.registry.remove(f"{role}-0")
        worker = b.registry.add(WorkerSpec(id="odd", role=role, url=f"http://127.0.0.1:{port}"))
        await b.until(lambda: worker.up)
        yield
        await asyncio.gather(*(task for task in running if task is not None))


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (PLAIN % (b"200 OK", b"application/json", DEEP), 502),
        (PLAIN % (b"400 No", b"application/json", DEEP), 400),
        (PLAIN % (b"200 OK", b"application/json; charset=hex", b"{}"), 502),
    ],
)
async def test_an_answer_that_cannot_be_read_is_the_engines_error(role: Role, answer: bytes, status: int) -> None:
    async with bench() as b, says(b, role, answer):
        found, text = await b.ask(stream=False)
        assert (found, "odd" in text) == (status, True)
        assert await b.outcomes() == {"error": 1}


@pytest.mark.parametrize("line", [b"data: " + DEEP, b"data: " + b"x" * (5 << 20)])
async def test_an_event_that_cannot_be_read_is_the_engines_error(line: bytes) -> None:
    async with bench() as b, says(b, Role.DECODE, PLAIN % (b"200 OK", b"text/event-stream", line + b"\n\n")):
        found, text = await b.ask()
        assert (found, "odd" in text) == (502, True)
        assert await b.outcomes() == {"error": 1}


@pytest.mark.parametrize("count", [10**400, -5])
async def test_a_count_no_prompt_can_have_is_passed_over(count: int) -> None:
    async with bench() as b:
        b.prefill.whole = {"choices": [], "usage": {"prompt_tokens": count}}
        assert (await b.ask())[0] == 200
        assert await b.outcomes() == {"ok": 1}
