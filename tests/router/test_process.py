"""The program as a user starts it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

WORKERS = ("--prefill", "prefill-0=http://127.0.0.1:9", "--decode", "decode-0=http://127.0.0.1:9")


def _run(*args: str, module: tuple[str, ...] = ("pdops.router",)) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *module, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_it_prints_its_address_serves_and_stops(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pdops", "router", *WORKERS, "--state", str(tmp_path / "w.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
                assert json.load(answer) == {"status": "alive"}
            assert (tmp_path / "w.json").stat().st_mode & 0o777 == 0o600
        finally:
            os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) == 0


def test_help_has_examples_and_needs_no_heavy_import() -> None:
    done = _run("router", "--help", module=("pdops",))
    assert done.returncode == 0
    assert "pdops router --prefill" in done.stdout
    code = "import sys; import pdops.router.cli; print({'aiohttp', 'opentelemetry', 'prometheus_client'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "there are no workers"),
        (("--prefill", "http://h:1"), "expected ID=URL"),
        (("--prefill", "p0=ftp://h:1"), "not a worker's address"),
        (("--prefill", "../p=http://h:1"), "not a worker id"),
        (("--prefill", "p0=http://h:1,rack=3"), "unknown key 'rack'"),
        (("--prefill", "x=http://h:1", "--decode", "x=http://h:2"), "an id is given twice"),
        ((*WORKERS, "--policy", "random"), "'random' is not one of"),
        ((*WORKERS, "--policy", "zone-aware"), "knows no zone"),
        ((*WORKERS, "--deadline", "nan"), "not a number of seconds"),
        ((*WORKERS, "--prefill-timeout", "0"), "not a number of seconds"),
        ((*WORKERS, "--port", "70000"), "70000"),
        ((*WORKERS, "--host", ""), "no address to serve on"),
        ((*WORKERS, "--host", "a..b"), "cannot serve"),
        (("--prefill", "p0=http://a..b:1"), "not a worker's address"),
        ((*WORKERS, "--admin-token-file", "/nonexistent/token"), "cannot read the admin token"),
        ((*WORKERS, "--state", "/nonexistent/state.json"), "cannot write the state file"),
        ((*WORKERS, "--otlp", "nowhere"), "not an OTLP endpoint"),
        ((*WORKERS, "--nothing"), "No such option"),
    ],
)
def test_what_cannot_be_started_says_why(args: tuple[str, ...], message: str) -> None:
    done = _run(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("content", ["", "two words", "\udcff"])
def test_a_token_file_must_hold_one_word(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    done = _run(*WORKERS, "--admin-token-file", str(path))
    assert done.returncode == 2
    assert "token" in done.stderr.splitlines()[0]


def test_a_port_that_is_taken_is_said() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        done = _run(*WORKERS, "--port", str(holder.getsockname()[1]))
    assert done.returncode == 2
    assert "cannot serve" in done.stderr
    assert "hint: choose another --port" in done.stderr
