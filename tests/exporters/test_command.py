"""`pdops exporter` as a user runs it, beside doubles that answer with recorded pages."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from .conftest import samples

PROMETHEUS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
"""What Prometheus 2.42 says it takes."""
PDOPS = [sys.executable, "-m", "pdops", "exporter"]


class PageDouble(ThreadingHTTPServer):
    """Serves one recorded page; `broken` makes it answer with an error."""

    def __init__(self, body: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.body, self.broken = body, False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: PageDouble

    def do_GET(self) -> None:
        self.send_response(500 if self.server.broken else 200 if self.path == "/metrics" else 404)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        if not self.server.broken and self.path == "/metrics":
            self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def pair(pages: dict[str, bytes]) -> Iterator[tuple[PageDouble, PageDouble]]:
    servers = [PageDouble(pages[f"vllm-0.32.0-nixl/{role}-load-c4.prom"]) for role in ("prefill", "decode")]
    threads = [threading.Thread(target=s.serve_forever) for s in servers]
    for thread in threads:
        thread.start()
    yield servers[0], servers[1]
    for server, thread in zip(servers, threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


def targets(pair: tuple[PageDouble, PageDouble]) -> list[str]:
    return ["--target", f"prefill={pair[0].url}", "--target", f"decode={pair[1].url}"]


def test_once_prints_the_page(pair: tuple[PageDouble, PageDouble]) -> None:
    done = subprocess.run([*PDOPS, *targets(pair), "--once", "--interval", "0.2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = samples(done.stdout)
    up = {dict(labels)["worker"]: v for (name, labels), v in found.items() if name == "pdops_worker_up"}
    assert up == {"prefill-0": 1.0, "decode-0": 1.0}


def test_nobody_answering_is_an_error_with_a_hint() -> None:
    done = subprocess.run(
        [*PDOPS, "--target", "prefill=http://127.0.0.1:9", "--once", "--interval", "0.2"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    assert "no target answered" in done.stderr
    assert "hint:" in done.stderr
    assert done.stdout == ""


def start(pair: tuple[PageDouble, PageDouble], *more: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [*PDOPS, *targets(pair), "--port", "0", "--interval", "0.2", *more], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    found = re.search(r"http://127\.0\.0\.1:\d+/metrics", process.stderr.readline())
    assert found is not None
    return process, found[0]


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def until(url: str, pattern: str) -> str:
    """Scrape until the page has a line; the test's own time limit bounds it."""
    while True:
        text = get(url)
        if re.search(pattern, text, re.MULTILINE):
            return text


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_serves_until_it_is_told_to_end(pair: tuple[PageDouble, PageDouble], number: int, status: int) -> None:
    process, url = start(pair)
    try:
        until(url, r'^pdops_worker_up\{.*worker="decode-0"\} 1')
        assert get(url.replace("/metrics", "/ready")) == "ok\n"
        assert get(url.replace("/metrics", "/healthz")) == "ok\n"
        for accept, kind in (
            (PROMETHEUS, "text/plain"),
            ("application/openmetrics-text", "application/openmetrics-text"),
        ):
            request = urllib.request.Request(url, headers={"Accept": accept})
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert answer.headers.get_content_type() == kind
        assert get(url.replace("/metrics", "/explain/PDKvTransferSlow")).startswith("# PDKvTransferSlow\n")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(url.replace("/metrics", "/explain/PDNoSuchAlert"))
        process.send_signal(number)
        assert process.wait(20) == status
    finally:
        process.kill()
        process.communicate()


def test_a_worker_that_breaks_is_told_and_the_other_stays(pair: tuple[PageDouble, PageDouble]) -> None:
    process, url = start(pair)
    try:
        until(url, r'^pdops_worker_up\{.*worker="prefill-0"\} 1')
        pair[0].broken = True
        text = until(url, r'^pdops_worker_up\{.*worker="prefill-0"\} 0')
        assert re.search(r'^pdops_queue_depth\{.*worker="decode-0"\}', text, re.MULTILINE)
        assert not re.search(r'^pdops_queue_depth\{.*worker="prefill-0"\}', text, re.MULTILINE)
    finally:
        process.kill()
        process.communicate()


def test_a_taken_port_is_said(pair: tuple[PageDouble, PageDouble]) -> None:
    port = pair[0].server_address[1]
    done = subprocess.run([*PDOPS, *targets(pair), "--port", str(port)], capture_output=True, text=True)
    assert done.returncode == 2
    assert "cannot listen" in done.stderr
    assert "hint:" in done.stderr


def test_one_look_and_a_timer_exclude_each_other() -> None:
    asked = [*PDOPS, "--target", "prefill=http://127.0.0.1:9", "--once", "--canary", "10"]
    done = subprocess.run(asked, capture_output=True, text=True)
    assert done.returncode == 2
    assert "pdops canary" in done.stderr


def test_a_prometheus_server_as_the_source_is_refused_with_what_to_do_instead() -> None:
    done = subprocess.run([*PDOPS, "--prometheus", "http://127.0.0.1:9"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "the exporter reads engines, not Prometheus" in done.stderr
    assert "--target" in done.stderr


def test_canaries_on_a_timer_are_on_the_page(pair: tuple[PageDouble, PageDouble]) -> None:
    process, url = start(pair, "--canary", "10")
    try:
        text = until(url, r'^pdops_probe_success\{.*target="prefill-0>decode-0"\}')
        # The doubles have pages and answer no request, so nothing is right and nothing is called right.
        assert not re.search(r"^pdops_probe_success\{.*\} 1", text, re.MULTILINE)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()
