"""Load and recording as processes: they start, are noticed when they end, and none is left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pdops.actuate import processes
from pdops.errors import DeploymentError
from pdops.reference.drills.crew import Programs
from pdops.sources.recording import open_recording

PAGE = b"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 1
"""
MARK = "drill-crew-test"


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def inventory(tmp_path: Path) -> Iterator[Path]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    path = tmp_path / "pdops.yaml"
    workers = [f"  - {{id: {role}-0, role: {role}, url: '{url}', engine: vllm}}" for role in ("prefill",)]
    path.write_text("\n".join(["version: 1", "cluster: c", "workers:", *workers, ""]))
    yield path
    server.shutdown()
    server.server_close()


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Programs]:
    crew = Programs(tmp_path, MARK)
    yield crew
    crew.stop()
    assert processes.with_mark(MARK) == set()


def test_a_recording_runs_until_it_is_finished_and_load_says_what_it_did(
    crew: Programs, inventory: Path, tmp_path: Path
) -> None:
    output = tmp_path / "x.pdrec"
    end = crew.load("http://127.0.0.1:9", "m", {"rate": 50, "duration": 0.5})
    start_s = crew.record(inventory, output)
    crew.load("http://127.0.0.1:9", "m", {})
    crew.check()
    assert len(processes.with_mark(MARK)) >= 2
    length_s = crew.finish()
    end()
    record = open_recording(output)
    assert (record.start_s, record.duration_s) == (start_s, length_s)
    assert processes.with_mark(MARK) == set()
    first = crew.summaries()[0]
    assert first["outcomes"] == {"ClientConnectorError": first["sent"]}


def test_a_recording_that_ends_is_noticed_with_what_it_said(crew: Programs, tmp_path: Path) -> None:
    with pytest.raises(DeploymentError, match="the recording ended early") as caught:
        crew.record(tmp_path / "nothing.yaml", tmp_path / "x.pdrec")
    assert "nothing.yaml" in caught.value.why
