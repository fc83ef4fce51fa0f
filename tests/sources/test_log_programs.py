"""Logs that programs print: doubles of journalctl and kubectl stand on the path, in place of the real ones."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pdops.clock import WallClock
from pdops.model.cluster import Cluster, Role, Worker
from pdops.model.frame import LogLine
from pdops.sources.logs import MAX_LINES, LogReader, follow
from pdops.sources.logs.programs import journal_line

Double = Callable[[str, str], Path]


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Double:
    """Put a double of a program on the path; it notes its arguments, one call a line, and runs a piece of Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(follow, "RETRY_S", 0.05)

    def make(name: str, body: str) -> Path:
        called = tmp_path / f"{name}.calls"
        file = folder / name
        file.write_text(
            f"#!{sys.executable}\nimport json, sys, time\n"
            f"with open({str(called)!r}, 'a') as calls:\n    calls.write(json.dumps(sys.argv[1:]) + '\\n')\n"
            f"def say(text, to=sys.stdout):\n    to.write(text + '\\n')\n    to.flush()\n"
            f"def stay():\n    time.sleep(60)\n{body}\n"
        )
        file.chmod(0o755)
        return called

    return make


def reading(*logs: dict[str, str]) -> LogReader:
    workers = tuple(
        Worker(id=f"w{index}", role=Role.DECODE, pool="d", logs=(entry,)) for index, entry in enumerate(logs)
    )
    return LogReader(Cluster(name="t", workers=workers), clock=WallClock())


async def until(source: LogReader, enough: Callable[[list[LogLine]], bool]) -> list[LogLine]:
    found: list[LogLine] = []
    async with asyncio.timeout(60):
        while not enough(found):
            new = await source.read(WallClock().now())
            assert max(Counter(line.worker for line in new).values(), default=0) <= MAX_LINES + 2
            found += new
            await asyncio.sleep(0.02)
    return found


def texts(found: list[LogLine]) -> list[str]:
    return [line.line for line in found]


async def test_the_log_of_a_pod_is_followed_without_a_shell(double: Double) -> None:
    called = double("kubectl", "say('INFO fine')\nsay('ERROR token Bearer abcdefgh1 $(id)')\nstay()")
    source = reading({"kubernetes": "decode-0", "namespace": "llm", "container": "vllm", "context": "prod"})
    found = await until(source, bool)
    assert texts(found) == ["ERROR token Bearer [redacted] $(id)"]
    assert found[0].worker == "w0"
    assert source.notes == ()
    await source.aclose()
    await source.aclose()
    assert json.loads(called.read_text()) == [
        "logs",
        "--follow",
        "--tail=0",
        "--namespace=llm",
        "--container=vllm",
        "--context=prod",
        "decode-0",
    ]


async def test_a_program_that_ends_is_said_and_started_again_from_there(double: Double) -> None:
    called = double("kubectl", "say('Error from server (NotFound): pods \"x\" not found', sys.stderr)\nsys.exit(1)")
    source = reading({"kubernetes": "x", "namespace": "llm"})
    await until(source, lambda _: any("ended" in note.why for note in source.notes))
    (note,) = source.notes
    assert (note.worker, note.code) == ("w0", "logs/0")
    assert note.why == (
        'kubernetes llm/x: kubectl ended with status 1: Error from server (NotFound): pods "x" not found'
    )
    assert "kubectl logs --namespace=llm x" in note.fix
    double("kubectl", "say('ERROR back')\nstay()")
    found = await until(source, bool)
    assert texts(found) == ["ERROR back"]
    assert source.notes == ()
    await source.aclose()
    assert json.loads(called.read_text().splitlines()[-1])[2].startswith("--since-time=20")


@pytest.mark.parametrize(
    ("log", "why", "fix"),
    [
        ({"kubernetes": "x"}, "kubernetes x: kubectl is not installed here", "install kubectl"),
        ({"journald": "v.service"}, "journald v.service: journalctl is not installed here", "run pdops on the machine"),
    ],
)
async def test_a_program_that_is_not_there_is_said_with_what_to_do(
    double: Double, log: dict[str, str], why: str, fix: str
) -> None:
    del double
    source = reading(log)
    await until(source, lambda _: bool(source.notes))
    assert source.notes[0].why == why
    assert fix in source.notes[0].fix
    await source.aclose()


async def test_the_journal_of_a_unit_is_followed_and_its_priorities_count(double: Double) -> None:
    entry = {"MESSAGE": "x", "PRIORITY": "6", "__REALTIME_TIMESTAMP": "1"}
    body = "\n".join(
        [
            f"say(json.dumps({dict(entry, MESSAGE='ERROR old')!r}))",
            "now = str(int((time.time() + 1) * 1e6))",
            f"entry = {entry!r} | {{'__REALTIME_TIMESTAMP': now}}",
            "say(json.dumps(entry | {'MESSAGE': 'quiet'}))",
            "say(json.dumps(entry | {'MESSAGE': 'it failed', 'PRIORITY': '3'}))",
            "say(json.dumps(entry | {'MESSAGE': list(b'ERROR \\xff')}))",
            "say('{broken')",
            "stay()",
        ]
    )
    called = double("journalctl", body)
    source = reading({"journald": "vllm.service"})
    found = await until(source, lambda lines: len(lines) >= 2)
    assert texts(found) == ["it failed", "ERROR \ufffd"]
    await source.aclose()
    argv = json.loads(called.read_text())
    assert argv[:3] == ["--unit=vllm.service", "--follow", "--lines=1"]
    assert "--output=json" in argv


async def test_what_a_program_complains_about_is_said_until_it_gives_a_line(double: Double) -> None:
    double("journalctl", "say('No journal files were found.', sys.stderr)\nstay()")
    source = reading({"journald": "v.service"})
    await until(source, lambda _: bool(source.notes))
    assert source.notes[0].why == "journald v.service: No journal files were found."
    await source.aclose()


async def test_a_flood_is_cut_to_its_newest_and_costs_nobody_else_a_line(double: Double) -> None:
    body = "if sys.argv[-1] == 'loud':\n    for n in range(60_000):\n        sys.stdout.write(f'ERROR {n:020d}\\n')\n"
    double("kubectl", body + "say('ERROR last')\nstay()")
    source = reading({"kubernetes": "loud"}, {"kubernetes": "calm"})
    found = await until(source, lambda lines: texts(lines).count("ERROR last") == 2)
    await source.aclose()
    assert [line.line for line in found if line.worker == "w1"] == ["ERROR last"]
    loud = [line.line for line in found if line.worker == "w0"]
    assert any("of the log were not read" in line for line in loud)
    assert loud[-1] == "ERROR last"


async def test_an_endless_line_is_left_out(double: Double) -> None:
    double("kubectl", "sys.stdout.write('ERROR ' + 'x' * 300_000 + '\\n')\nsay('ERROR next')\nstay()")
    source = reading({"kubernetes": "x"})
    found = await until(source, lambda lines: "ERROR next" in texts(lines))
    await source.aclose()
    assert all(len(line.line) < 3_000 for line in found)


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{}", b'{"MESSAGE": null}', b'{"MESSAGE": [300]}', b"[" * 100_000, b"\xff", b"-- Boot --"]
)
def test_what_is_no_journal_entry_is_left_out(raw: bytes) -> None:
    assert journal_line(raw) is None
