"""Bounded load: what it sends, how it reads answers, and that it ends."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from pdops.reference.load import Answer, Load, LoadOptions, Tally, quantile, text

PIECES = (b'{"choices":[{"text":"a"}]}', b'{"choices":[{"text":"b"}]}')
USAGE = b'{"choices":[],"usage":{"completion_tokens":2}}'


def events(*payloads: bytes) -> bytes:
    return b"".join(b"data: " + p + b"\n\n" for p in payloads)


@asynccontextmanager
async def server(
    body: bytes, status: int = 200, wait_s: float = 0.0
) -> AsyncIterator[tuple[str, list[dict[str, object]]]]:
    seen: list[dict[str, object]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(await request.json())
        await asyncio.sleep(wait_s)
        return web.Response(body=body, status=status)

    app = web.Application()
    app.router.add_post("/v1/completions", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", seen
    finally:
        await runner.cleanup()


async def loaded(url: str, **more: float) -> dict[str, object]:
    settings = {"rate": 200.0, "duration": 0.1, "concurrency": 4, "timeout": 5.0, **more}
    return await Load(LoadOptions(url=url, model="m", **settings)).run(asyncio.Event())  # type: ignore[arg-type]


async def test_it_counts_what_was_answered_and_sheds_above_the_cap() -> None:
    async with server(events(*PIECES, USAGE, b"[DONE]"), wait_s=0.05) as (url, seen):
        told = await loaded(url)
    assert told["outcomes"] == {"ok": told["sent"]}
    assert told["sent"] == len(seen) > 0
    assert told["shed"] > 0  # type: ignore[operator]
    assert told["tokens"] == 2 * len(seen)
    assert told["ttft_s_p50"] is not None
    assert {len(str(body["prompt"])) for body in seen} == {300}
    assert len({str(body["prompt"])[:90] for body in seen}) == 1 < len({body["prompt"] for body in seen})


@pytest.mark.parametrize(
    ("body", "status", "outcome", "error"),
    [
        (events(PIECES[0]), 200, "error in stream", "cut short"),
        (events(PIECES[0], b'{"error":{"message":"boom"}}'), 200, "error in stream", "boom"),
        (b'{"object":"error","message":"whole"}', 200, "error in stream", "whole"),
        (events(b"nonsense"), 200, "error in stream", "not a JSON object: b'nonsense'"),
        (b"full", 503, "status 503", "full"),
    ],
)
async def test_an_answer_that_is_none_is_told_apart(body: bytes, status: int, outcome: str, error: str) -> None:
    async with server(body, status) as (url, _):
        told = await loaded(url)
    assert told["outcomes"] == {outcome: told["sent"]}
    assert told["errors"] == {error: told["sent"]}
    assert told["ttft_s_p50"] is None


async def test_stopping_ends_what_is_under_way() -> None:
    stop = asyncio.Event()
    async with server(b"", wait_s=30.0) as (url, _):
        running = asyncio.create_task(
            Load(LoadOptions(url=url, model="m", rate=100, duration=60, concurrency=2)).run(stop)
        )
        await asyncio.sleep(0.2)
        stop.set()
        told = await asyncio.wait_for(running, 5)
    assert told["stopped_early"] is True
    assert told["outcomes"] == {"cancelled": 2}


@contextmanager
def program() -> Iterator[subprocess.Popen[str]]:
    """The program, once it has sent something: from then on it takes signals."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        command = [sys.executable, "-m", "pdops.reference.load", url, "--model=m", "--duration=60", "--rate=20"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as p, listening.accept()[0]:
            yield p


def test_the_program_prints_one_object_when_it_is_told_to_end() -> None:
    with program() as p:
        p.send_signal(signal.SIGTERM)
        out, _ = p.communicate(timeout=60)
    assert json.loads(out)["stopped_early"] is True
    assert p.returncode == 0


def test_a_signal_begins_another_phase_of_the_program() -> None:
    with program() as p:
        # Where the second comes before the first is taken, both are before the program goes on.
        p.send_signal(signal.SIGUSR1)
        p.send_signal(signal.SIGTERM)
        out, _ = p.communicate(timeout=60)
    assert len(json.loads(out)["phases"]) == 2


async def test_each_phase_has_counts_of_its_own_by_when_a_request_was_sent() -> None:
    async with server(events(*PIECES, b"[DONE]"), wait_s=0.5) as (url, _):
        load = Load(LoadOptions(url=url, model="m", rate=20, duration=1.0, concurrency=64))
        running = asyncio.create_task(load.run(asyncio.Event()))
        while not load.phases[0].sent:
            await asyncio.sleep(0.01)
        sent = load.phases[0].sent
        load.phases.append(Tally())
        told = await asyncio.wait_for(running, 20)
    phases = told["phases"]
    assert isinstance(phases, list)
    first, second = phases
    assert (first["sent"], first["outcomes"]) == (sent, {"ok": sent})
    assert second["sent"] > 0
    assert told["sent"] == first["sent"] + second["sent"]
    assert told["outcomes"] == {"ok": told["sent"]}


@pytest.mark.parametrize(
    "bad", ["--rate=0", "--rate=nan", "--duration=1e9", "--concurrency=1.5", "--shared=2", "--tokens=x"]
)
def test_settings_without_bounds_are_refused(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    from pdops.reference.load import _parser

    with pytest.raises(SystemExit):
        _parser().parse_args(["http://x", "--model", "m", bad])
    assert "error: argument" in capsys.readouterr().err


@given(st.integers(1, 500), st.integers(0, 5))
def test_a_prompt_has_exactly_its_length(chars: int, seed: int) -> None:
    made = text(chars, random.Random(seed))
    assert len(made) == chars
    assert made == text(chars, random.Random(seed))


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_no_answer_breaks_the_reader(lines: list[bytes]) -> None:
    reader = Answer()
    for line in lines:
        reader.feed(line)
        reader.feed(b"data: " + line)
    assert reader.pieces >= 0


@pytest.mark.parametrize(
    "line",
    [
        b'{"choices":null}',
        b'{"choices":[null]}',
        b'{"choices":[{}]}',
        b'{"choices":{}}',
        b'{"usage":3}',
        b'{"usage":[]}',
        b'{"error":1}',
        b"[]",
        b"3",
    ],
)
def test_an_event_of_another_form_is_no_output(line: bytes) -> None:
    assert Answer().feed(b"data: " + line) is False


def test_quantiles_of_nothing_are_not_known() -> None:
    assert quantile([], 0.5) is None
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([3.0, 1.0, 2.0], 0.99) == 3.0
