"""The readiness and drain program, run as a program against small servers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pdops.reference.render import parts

Page = Callable[[], tuple[int, str]]
MODELS = json.dumps({"data": [{"id": "m"}]})
LIMIT_S = 60


class Server:
    """Answers pages that a test may change while it runs, and keeps what was asked."""

    def __init__(self) -> None:
        self.pages: dict[str, Page | str] = {}
        self.asked: list[tuple[str, str, str | None]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append((self.command, self.path, self.headers.get("Authorization")))
                page = server.pages.get(self.path, lambda: (404, ""))
                status, text = page() if callable(page) else (200, page)
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gate") / "gate.py"
    path.write_text(parts.gate_text())
    return path


def busy(running: int, waiting: int = 0) -> str:
    labels = '{engine="0",model_name="m"}'
    return f"vllm:num_requests_running{labels} {running}.0\nvllm:num_requests_waiting{labels} {waiting}.0\n"


def run(gate: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(gate), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def test_an_engine_is_ready_when_it_serves_is_counted_and_takes_handshakes(gate: Path, server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as side:
        words = ("ready", f"--url={server.url}", "--model=m", "--times=2", "--every=0.01")
        address = f"--side-channel=127.0.0.1:{side.getsockname()[1]}"
        assert "answers 404" in run(gate, *words, address).stderr
        server.pages["/v1/models"] = MODELS
        assert "answers 404" in run(gate, *words, address).stderr
        server.pages["/metrics"] = "other 1\n"
        assert "say nothing about requests" in run(gate, *words, address).stderr
        server.pages["/metrics"] = busy(0)
        assert run(gate, *words, address).returncode == 0
        assert "serves m, not n" in run(gate, *words[:2], "--model=n").stderr
    said = run(gate, *words, address)
    assert (said.returncode, "does not take connections" in said.stderr) == (1, True)


@pytest.mark.parametrize("answer", ["", "[]", "{}", '{"data": [1]}', "<html>"])
def test_an_answer_that_makes_no_sense_is_not_ready(gate: Path, server: Server, answer: str) -> None:
    server.pages |= {"/v1/models": answer, "/metrics": busy(0)}
    said = run(gate, "ready", f"--url={server.url}", "--model=m")
    assert said.returncode == 1
    assert "not ready" in said.stderr
    assert "Traceback" not in said.stderr


def test_one_success_is_not_several_in_a_row(gate: Path, server: Server) -> None:
    answers = iter([(200, "ok"), (503, ""), (200, "ok")])
    server.pages["/ready"] = lambda: next(answers)
    assert run(gate, "http", f"{server.url}/ready", "--times=2", "--every=0.01").returncode == 1


def test_a_store_that_is_not_in_service_is_not_ready(gate: Path, server: Server) -> None:
    words = [w for w in parts.store_ready_words(1)[3:] if not w.startswith("http://")]
    server.pages["/health"] = '{"status": "ok", "service_ready": false}'
    assert run(gate, *words, f"{server.url}/health").returncode == 1
    server.pages["/health"] = '{"status": "ok", "service_ready": true}'
    assert run(gate, *words, f"{server.url}/health").returncode == 0


def test_waiting_goes_on_until_it_is_there_for_long_enough(gate: Path, server: Server) -> None:
    answers = iter([(503, ""), (200, ""), (503, ""), *[(200, "")] * 3])
    server.pages["/health"] = lambda: next(answers)
    said = run(gate, "wait", "--budget=30", "--times=3", "--every=0.01", f"--http={server.url}/health")
    assert said.returncode == 0
    assert len(server.asked) == 6


def test_waiting_is_bounded_and_says_for_what(gate: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    said = run(gate, "wait", "--budget=0.1", "--every=0.05", f"--tcp=127.0.0.1:{port}")
    assert said.returncode == 1
    assert f"127.0.0.1:{port} does not take connections" in said.stderr
    assert said.stderr.count("waiting for") == 1


def test_draining_tells_the_router_and_waits_for_the_last_request(gate: Path, server: Server, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    left = iter([busy(2, 1), busy(1), "", busy(0), busy(0), busy(0)])
    server.pages |= {"/metrics": lambda: (200, next(left)), "/admin/workers/prefill-0/cordon": "{}"}
    words = ("drain", f"--url={server.url}", "--deadline=30", "--linger=0.1", "--every=0.01")
    cordon = (f"--router={server.url}", "--worker=prefill-0", f"--token-file={token}")
    said = run(gate, *words, *cordon)
    assert said.returncode == 0
    assert server.asked[0] == ("POST", "/admin/workers/prefill-0/cordon", "Bearer secret")
    assert len(server.asked) == 7
    assert "secret" not in said.stderr


def test_what_is_lost_at_the_deadline_is_said(gate: Path, server: Server, tmp_path: Path) -> None:
    server.pages["/metrics"] = busy(3, 2)
    words = ("drain", f"--url={server.url}", "--deadline=0", "--every=0.01")
    said = run(gate, *words, f"--router={server.url}", "--worker=w", f"--token-file={tmp_path / 'absent'}")
    assert said.returncode == 0
    assert "5 requests will be lost" in said.stderr
    assert "could not be told" in said.stderr
    server.pages["/metrics"] = lambda: (500, "")
    assert "unknown number of requests will be lost" in run(gate, *words).stderr


def test_an_engine_that_is_gone_has_nothing_to_drain(gate: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    said = run(gate, "drain", f"--url=http://127.0.0.1:{port}", "--deadline=50", "--linger=50")
    assert (said.returncode, "nothing listens" in said.stderr) == (0, True)


def test_running_becomes_the_command_with_an_address_peers_reach(gate: Path) -> None:
    program = "import os; print(os.getpid(), os.environ['VLLM_NIXL_SIDE_CHANNEL_HOST'])"
    command = [sys.executable, "-I", str(gate), "run", "--", sys.executable, "-c", program]
    env = {**os.environ, "VLLM_NIXL_SIDE_CHANNEL_HOST": "10.1.2.3"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as child:
        assert child.stdout is not None
        assert child.stdout.read().split() == [str(child.pid), "10.1.2.3"]
    assert run(gate, "run").returncode == 2


def test_sigterm_drains_before_it_ends_the_engine(gate: Path, server: Server, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    held = threading.Event()
    asked = threading.Event()

    def metrics() -> tuple[int, str]:
        asked.set()
        return 200, busy(0 if held.is_set() else 1)

    server.pages |= {"/metrics": metrics} | {f"/admin/workers/d/{v}": "{}" for v in ("cordon", "uncordon")}
    engine = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); "
        "print('up', flush=True); signal.pause()"
    )
    words = ["run", f"--router={server.url}", "--worker=d", f"--token-file={token}", f"--drain-url={server.url}"]
    words += ["--drain-deadline=30", "--every=0.05", "--", sys.executable, "-c", engine]
    env = {**os.environ, "VLLM_NIXL_SIDE_CHANNEL_HOST": "10.1.2.3"}
    with subprocess.Popen(
        [sys.executable, "-I", str(gate), *words], stdout=subprocess.PIPE, text=True, env=env
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        child.send_signal(signal.SIGTERM)
        assert asked.wait(LIMIT_S)
        # One request still runs, so the engine must be there.
        assert child.poll() is None
        held.set()
        assert child.wait(LIMIT_S) == 7
    assert [path for _, path, _ in server.asked if "admin" in path] == [
        "/admin/workers/d/uncordon",
        "/admin/workers/d/cordon",
    ]
