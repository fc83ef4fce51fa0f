"""`pdops respond` as a process, and who may approve on this host."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pdops.cli import main
from pdops.clock import WallClock
from pdops.runbook.journal import Journal
from pdops.runbook.model import Risk
from tests.respond.kit import alert, body
from tests.runbook.engine_kit import CORDON, Bench

ROOT = Path(__file__).parents[2]
TOKEN = "t" * 32
ME = pwd.getpwuid(os.getuid()).pw_name
INVENTORY = """
version: 1
cluster: lab
workers:
  - {id: prefill-0, role: prefill, pool: prefill, url: "http://127.0.0.1:9", engine: vllm}
  - {id: decode-0, role: decode, pool: decode, url: "http://127.0.0.1:10", engine: vllm}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pdops.yaml").write_text(INVENTORY)
    (tmp_path / "tokens").write_text(f"ada:admin:{TOKEN}\n")
    (tmp_path / "tokens").chmod(0o600)
    return tmp_path


@contextmanager
def responding(folder: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command until the block ends; give its address."""
    args = ["-c", folder / "pdops.yaml", "--journal", folder / "journal.db", "--port", "0", "--for", "2", *more]
    command = [sys.executable, "-m", "pdops", "respond", *map(str, args)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stdout is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("pdops respond: http://127.0.0.1:"), line
        yield process, line.split()[-1].removesuffix("/alerts")
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()
        process.stderr.close()


def ask(url: str, data: bytes | None = None) -> Any:
    request = urllib.request.Request(url, data=data, headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def test_what_was_answered_is_known_after_a_kill(folder: Path) -> None:
    with responding(folder) as (process, url):
        assert ask(f"{url}/alerts", body(alert()))["new"] == 1
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    with responding(folder) as (process, url):
        assert ask(f"{url}/alerts", body(alert()))["known"] == 1
        found = ask(f"{url}/status")
        while found["episodes"][0]["made"] is None:
            found = ask(f"{url}/status")
        assert found["episodes"][0]["made"] in ("no-data", "held", "disagrees", "refused")
        assert found["runs"] == []
        assert found["watchdog"]["state"] == "waiting"
        process.terminate()
        assert process.wait(60) == 130


def test_decisions_are_told_to_whoever_is_named(folder: Path) -> None:
    with responding(folder, "--notify", "stdout") as (process, url):
        ask(f"{url}/alerts", body(alert()))
        assert process.stdout is not None
        told = process.stdout.readline()
    assert "PDPrefillQueueing" in told


def test_a_second_process_for_the_same_cluster_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with responding(folder):
        code, err = _pdops(capsys, "respond", "-c", folder / "pdops.yaml", "--journal", folder / "journal.db")
    assert (code, "answered by another process" in err) == (6, True)


def _pdops(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in args])
    code = ended.value.code
    return (code if isinstance(code, int) else 0), capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--mode", "scale-out-prefill"), "--mode is not RUNBOOK=MODE"),
        (("--mode", "scale-out-prefill=always"), "--mode is not RUNBOOK=MODE"),
        (("--mode", "restart-worker=auto"), "may not be automatic"),
        (("--mode", "nothing=auto"), "no such runbook"),
        (("--mode", "scale-out-prefill=auto"), "may only advise here"),
        (("--mode", "a=auto", "--mode", "a=advise"), "given two modes"),
        (("--alertmanager", "http://user:pw@host"), "--alertmanager cannot be used: credentials in a URL"),
        (("--tokens", "/nothing/tokens"), "tokens cannot be used"),
        (("--runbook", "/nothing.yaml"), "runbook cannot be used"),
    ],
)
def test_what_cannot_be_used_is_said_before_anything_listens(
    args: tuple[str, ...], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = _pdops(
        capsys, "respond", "-c", folder / "pdops.yaml", "--journal", folder / "journal.db", "--port", 0, *args
    )
    assert (code, said in err, "hint: " in err) == (2, True, True), err


def test_targets_without_a_name_are_no_cluster(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = _pdops(capsys, "respond", "--journal", folder / "journal.db", "--prometheus", "http://127.0.0.1:9")
    assert (code, "no cluster is named" in err) == (2, True)


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A journal with a run that waits for approval."""
    bench = Bench(tmp_path)
    expires_at_s = WallClock().now() + 600
    bench.executor("ada").open(bench.plan(CORDON, "waits", risk=Risk.DISRUPTIVE, expires_at_s=expires_at_s))
    bench.journal.close()
    return tmp_path / "journal.db"


@pytest.mark.parametrize(
    ("line", "actor", "said"),
    [
        (f"{ME}:operator:{TOKEN}", None, "it is operator"),
        (f"bob:approver:{TOKEN}", None, "the file does not name it"),
        (f"bob:approver:{TOKEN}", "bob", "names are not taken as they are given here"),
        (f"{ME}:approver:{TOKEN}", None, ""),
    ],
)
def test_where_roles_are_kept_only_an_approver_approves(
    line: str, actor: str | None, said: str, waiting: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting.with_name("tokens").write_text(line + "\n")
    named = ("--as", actor) if actor is not None else ()
    code, err = _pdops(capsys, "runbook", "approve", "waits", "--journal", waiting, *named)
    assert (code, said in err) == (6 if said else 0, True)
    with Journal(waiting, WallClock()) as journal:
        assert journal.runs()[0].approver == (None if said else ME)
