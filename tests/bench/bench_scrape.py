"""Compare the cost of direct scraping with that of Debian's Prometheus on the same targets, in one run.

Run as `python tests/bench/bench_scrape.py [--seconds 30] [--targets 64,512]`; prints a Markdown table. One process
serves all targets from loopback: a recorded page of 69 KB whose values change. Each reader runs alone beside it:
pdops with the selective fast loop, pdops reading full pages only, and Prometheus when it is on PATH.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

PAGE = Path(__file__).resolve().parents[2] / "fixtures/expositions/vllm-0.32.0-nixl/decode-overload-after.prom"
VARIANTS = 128
VARIANT_S = 5.0
"""Counters must not fall during a run, which lasts less than VARIANTS times this."""
WARM_S = 12.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def variants(body: bytes) -> list[bytes]:
    """Return the page with its values moved on a little each time, all of one layout."""
    found = []
    for step in range(VARIANTS):
        lines = []
        for line in body.split(b"\n"):
            head, space, value = line.rpartition(b" ")
            if space and not line.startswith((b"#", b"process_start")) and b"_created" not in head:
                line = head + b" " + repr(float(value) + step).encode()
            lines.append(line)
        found.append(b"\n".join(lines))
    return found


def answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(body) + body


class Pages(asyncio.Protocol):
    """Answers /N/full/metrics with everything, /N/fast/metrics also by name, /count with the number of answers."""

    full: ClassVar[list[bytes]] = []
    fast: ClassVar[dict[str, list[bytes]]] = {}
    bodies: ClassVar[list[bytes]] = []
    served = 0
    start_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
            self.transport.write(self.reply(head.split(b" ", 2)[1].decode()))

    def reply(self, target: str) -> bytes:
        path, _, query = target.partition("?")
        if path == "/count":
            return answer(str(Pages.served).encode())
        turn = min(int((time.monotonic() - Pages.start_s) / VARIANT_S), VARIANTS - 1)
        if path.endswith("/metrics"):
            Pages.served += 1
            return Pages.full[turn]
        if path.endswith("/fast/metrics/"):
            Pages.served += 1
            return self.by_name(query)[turn]
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

    @staticmethod
    def by_name(query: str) -> list[bytes]:
        if query not in Pages.fast:
            names = {name.encode() for name in parse_qs(query)["name[]"]}
            Pages.fast[query] = [
                answer(
                    b"".join(ln + b"\n" for ln in b.split(b"\n") if ln.partition(b"{")[0].partition(b" ")[0] in names)
                )
                for b in Pages.bodies
            ]
        return Pages.fast[query]


async def serve() -> None:
    Pages.bodies = variants(PAGE.read_bytes())
    Pages.start_s = time.monotonic()
    Pages.full = [answer(body) for body in Pages.bodies]
    server = await asyncio.get_running_loop().create_server(Pages, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return float("nan")


async def scrape(url: str, targets: int, mode: str, seconds: float) -> None:
    """Scrape for a while as a process of its own, and print what it cost as JSON."""
    from pdops.model.cluster import Cluster, Endpoint, Role, Worker
    from pdops.sources.scrape import ScrapeSource

    workers = tuple(
        Worker(id=f"w{n}", role=Role.DECODE, pool="d", endpoints=(Endpoint(f"{url}/{n}/{mode}/metrics", "vllm"),))
        for n in range(targets)
    )
    source = ScrapeSource(Cluster(name="bench", workers=workers), 1.0)
    newest: dict[str, float] = {}
    ages: list[float] = []
    begin = time.monotonic()
    cpu = 0.0
    pages = 0
    started = False
    async for frame in source.frames():
        elapsed = time.monotonic() - begin
        for one in frame.scrapes:
            if one.error is None:
                newest[one.worker] = one.at_s
        if elapsed < WARM_S:
            continue
        if not started:
            started, begin_s, cpu = True, elapsed, time.process_time()
            continue
        pages += sum(one.error is None for one in frame.scrapes)
        # A reader looks at any moment between this frame and the next.
        ages += [frame.at_s - at_s + (n + 0.5) / 10 for at_s in newest.values() for n in range(10)]
        if elapsed - begin_s >= seconds:
            break
    used = time.process_time() - cpu
    await source.aclose()
    ages.sort()
    print(
        json.dumps(
            {
                "cpu": used / (elapsed - begin_s),
                "age": ages[int(len(ages) * 0.95)],
                "rss": rss_mb(os.getpid()),
                "pages": pages / (elapsed - begin_s),
            }
        )
    )


def busy_s() -> float:
    """Seconds of CPU that the whole machine has used."""
    fields = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / TICKS_PER_S


@dataclass(frozen=True)
class Server:
    """The process that serves the pages."""

    url: str
    pid: int


class Others:
    """How many cores everything but the reader and the served pages keep busy."""

    def __init__(self, server_pid: int) -> None:
        self.pid = server_pid
        self.busy, self.server, self.start = busy_s(), cpu_s(server_pid), time.monotonic()

    def cores(self, reader_s: float) -> float:
        span = time.monotonic() - self.start
        return max(0.0, busy_s() - self.busy - (cpu_s(self.pid) - self.server) - reader_s) / span


def count(url: str) -> int:
    with urllib.request.urlopen(f"{url}/count", timeout=10) as response:
        return int(response.read())


def run_pdops(server: Server, targets: int, mode: str, seconds: float) -> dict[str, float]:
    command = [sys.executable, __file__, "--scrape", server.url, mode, str(targets), str(seconds)]
    others, before = Others(server.pid), os.times()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    after = os.times()
    used = after.children_user - before.children_user + after.children_system - before.children_system
    return {**json.loads(done.stdout), "others": others.cores(used)}


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def run_prometheus(server: Server, targets: int, seconds: float) -> dict[str, float]:
    url, host = server.url, urlsplit(server.url).netloc
    jobs = [
        {"targets": [host], "labels": {"__metrics_path__": f"/{n}/full/metrics", "worker": f"w{n}"}}
        for n in range(targets)
    ]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "bench", "static_configs": jobs}],
    }
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{sock.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prometheus.yml"
        path.write_text(json.dumps(config))
        command = [
            "prometheus",
            f"--config.file={path}",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={address}",
            "--log.level=error",
        ]
        others = Others(server.pid)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: reachable(f"http://{address}/-/ready"))
            time.sleep(WARM_S)
            before, cpu, start = count(url), cpu_s(process.pid), time.monotonic()
            time.sleep(seconds)
            span = time.monotonic() - start
            return {
                "cpu": (cpu_s(process.pid) - cpu) / span,
                "rss": rss_mb(process.pid),
                "pages": (count(url) - before) / span,
                "others": others.cores(cpu_s(process.pid)),
            }
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def reachable(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def wait_for(ready: Callable[[], bool], most_s: float = 60.0) -> None:
    end = time.monotonic() + most_s
    while not ready():
        if time.monotonic() > end:
            raise SystemExit("Prometheus did not get ready")
        time.sleep(0.2)


def row(targets: int, reader: str, found: dict[str, float], anchor: dict[str, float] | None) -> str:
    per = found["cpu"] / found["pages"]
    cells = [
        f"{targets}",
        reader,
        f"{found['pages']:.0f}",
        f"{found['cpu'] * 100:.1f} %",
        f"{per * 1e3:.2f}",
        "-" if anchor is None else f"{per / (anchor['cpu'] / anchor['pages']):.2f}x",
        f"{found['age']:.2f}" if "age" in found else "-",
        f"{found['rss']:.0f}",
        f"{found['others']:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=30.0)
    options.add_argument("--targets", default="64,512")
    options.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--scrape", nargs=4, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.serve:
        asyncio.run(serve())
        return
    if chosen.scrape:
        url, mode, targets, seconds = chosen.scrape
        asyncio.run(scrape(url, int(targets), mode, float(seconds)))
        return
    print(
        f"pdops {version('pdops')}, aiohttp {version('aiohttp')}, Python {platform.python_version()}, {os.cpu_count()} cores"
    )
    has_prometheus = shutil.which("prometheus") is not None
    if not has_prometheus:
        print("prometheus is not on PATH: nothing to compare with (apt-get install prometheus)")
    print(f"Page: {PAGE.stat().st_size} bytes; 1 s interval; {chosen.seconds:g} s after {WARM_S:g} s of warming up.\n")
    print(
        "| targets | reader | pages a second | CPU of one core | ms of CPU a page | of Prometheus a page "
        "| p95 data age, s | RSS, MB | cores others kept busy |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    process = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        server = Server(f"http://127.0.0.1:{process.stdout.readline().strip()}", process.pid)
        for targets in (int(n) for n in chosen.targets.split(",")):
            anchor = run_prometheus(server, targets, chosen.seconds) if has_prometheus else None
            for name, mode in (("pdops, fast loop", "fast"), ("pdops, full pages", "full")):
                print(row(targets, name, run_pdops(server, targets, mode, chosen.seconds), anchor), flush=True)
            if anchor is not None:
                print(row(targets, "Prometheus", anchor, anchor), flush=True)
    finally:
        process.terminate()
        process.wait(10)


if __name__ == "__main__":
    main()
