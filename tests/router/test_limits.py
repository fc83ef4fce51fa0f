"""What a slow client or an odd worker cannot do."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from pdops.clock import WallClock
from pdops.model.cluster import Role
from pdops.router import serve
from pdops.router.app import Router
from pdops.router.models import MAX_BYTES
from pdops.router.settings import Settings, WorkerSpec
from pdops.router.workers import seeded
from pdops.telemetry.tracing import NoTracer
from tests.router.doubles import PATIENCE_S, TOKEN, bench
from tests.router.test_garbage import PLAIN, says
from tests.router.test_process import WORKERS

HEAD = "POST {} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{{"


@pytest.mark.parametrize(("path", "status"), [("/v1/completions", 408), ("/admin/workers", 408)])
async def test_a_body_that_does_not_come_is_not_waited_for(path: str, status: int) -> None:
    async with bench(Settings(body_timeout_s=0.05)) as b:
        reader, writer = await asyncio.open_connection(b.client.host, b.client.port)
        writer.write(HEAD.format(path, TOKEN).encode())
        async with asyncio.timeout(PATIENCE_S):
            answer = await reader.readuntil(b"\r\n")
        assert int(answer.split()[1]) == status
        writer.close()
        assert not b.prefill.bodies
        if path.startswith("/v1"):
            assert await b.outcomes() == {"aborted": 1}


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
@pytest.mark.parametrize("code", [302, 307])
async def test_a_worker_that_points_elsewhere_is_not_followed(code: int, role: Role) -> None:
    asked: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({"object": "list", "data": []})

    other = web.Application()
    other.router.add_route("*", "/{rest:.*}", elsewhere)
    async with TestServer(other) as away, bench() as b:
        answer = (b"HTTP/1.1 %d Moved\r\nLocation: %b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n") % (
            code,
            str(away.make_url("/v1/completions")).encode(),
        )
        async with says(b, role, answer):
            assert (await b.ask(stream=False))[0] == 502
            async with b.client.get("/v1/models") as models:
                assert (await models.json())["data"] == [{"id": "tiny"}], "another worker tells them"
        lost = b.registry.add(WorkerSpec(id="moved", role=Role.DECODE, url=str(away.make_url("")).rstrip("/")))
        await b.until(lambda: lost.up)
    assert asked
    assert set(asked) == {"/health"}, "nobody but the look at the worker that was added went there"


async def test_a_worker_whose_health_points_elsewhere_is_down() -> None:
    async def moved(_request: web.Request) -> web.Response:
        raise web.HTTPFound("/fine")

    async def fine(_request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_get("/health", moved)
    app.router.add_get("/fine", fine)
    async with TestServer(app) as server, bench() as b:
        odd = b.registry.add(WorkerSpec(id="odd", role=Role.DECODE, url=str(server.make_url("")).rstrip("/")))
        await b.until(lambda: odd.up is not None)
        assert odd.up is False


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[]",
        b'{"data": 5}',
        b'{"data": [{"name": "x"}]}',
        b"[" * 100_000,
        b'{"data": [], "pad": "' + b"x" * MAX_BYTES + b'"}',
        b"\xff\xfe",
    ],
)
async def test_what_is_no_list_of_models_is_not_passed_on(body: bytes) -> None:
    async with bench() as b, says(b, Role.DECODE, PLAIN % (b"200 OK", b"application/json", body)):
        async with b.client.get("/v1/models") as answer:
            assert (await answer.json())["data"] == [{"id": "tiny"}], "another worker tells them"
        b.registry.remove("prefill-0")
        async with b.client.get("/v1/models") as answer:
            assert answer.status == 503
            assert "no worker tells" in await answer.text()


async def test_a_caller_that_a_worker_refuses_is_told_so() -> None:
    refusal = PLAIN % (b"401 Unauthorized", b"application/json", json.dumps({"error": {"message": "no key"}}).encode())
    async with bench() as b, says(b, Role.DECODE, refusal), b.client.get("/v1/models") as answer:
        assert (answer.status, "no key" in await answer.text()) == (401, True)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_how_it_was_stopped_is_its_exit_status(number: signal.Signals, status: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pdops.router", *WORKERS, "--state", str(tmp_path / "w.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("http://127.0.0.1:")
        finally:
            os.kill(process.pid, number)
        assert process.wait(60) == status


async def test_a_head_that_does_not_come_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "IDLE_S", 0.05)
    runner = serve.runner(Router(Settings(), seeded([]), WallClock(), NoTracer(), token=TOKEN))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        reader, writer = await asyncio.open_connection(*runner.addresses[0][:2])
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: ")
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.read() == b""
        writer.close()
    finally:
        await runner.cleanup()
