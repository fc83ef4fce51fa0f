"""Measure the screen: start to first frame, tick and CPU share by rows, and memory over an hour of recording.

`python tests/bench/bench_tui.py [tick|start|memory] …`; without words all three. Times of the drawing thread are CPU time of that
thread, so that other work on the machine does not count; the start is wall time, with the CPU time of the process beside it:
until the first table, whose values may all be unknown yet, and until every target has answered.
`PDOPS_BENCH_OTHERS=/path/to/bin` also starts vllm-htop and nvitop from there.
"""

from __future__ import annotations

import asyncio
import os
import pty
import re
import resource
import select
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PARTS = [str(REPOSITORY / part) for part in (".", "tui", "exporters", "runbooks", "dashboards")]
sys.path[:0] = PARTS

from pdops.diagnose.engine import diagnose  # noqa: E402
from pdops.history.ring import Ring  # noqa: E402
from pdops.model.cluster import Cluster  # noqa: E402
from pdops.model.frame import Frame, Layout, Scrape  # noqa: E402
from pdops.model.view import Note  # noqa: E402
from pdops_tui.app import TopApp  # noqa: E402
from pdops_tui.places import Place  # noqa: E402
from pdops_tui.replay import ReplayFeed  # noqa: E402
from pdops_tui.shot import Still  # noqa: E402
from pdops_tui.snapshot import Command, Snapshot  # noqa: E402
from tests.tui import build as b  # noqa: E402

TICKS = 40
SECONDS = 20
SIZE = (200, 60)
STARTS = 5


def p95(found: list[float]) -> float:
    """Return the 95th percentile of a few numbers: the smallest that 95 % do not exceed."""
    ordered = sorted(found)
    return ordered[min(len(ordered) - 1, -(-95 * len(ordered) // 100) - 1)]


# the tick


class Beat(Still):
    """A feed that gives one snapshot of several, in turn."""

    def __init__(self, snapshots: list[Snapshot]) -> None:
        super().__init__(snapshots[0])
        self._all, self.turn = snapshots, 0

    def latest(self) -> Snapshot:
        """Return the snapshot of this turn."""
        made = self._all[self.turn % len(self._all)]
        return Snapshot(seq=self.turn + 1, view=made.view, report=made.report, source="bench")


def snapshots(workers: int) -> list[Snapshot]:
    """Return snapshots a second apart, every number in them new."""
    who = b.cluster(workers // 4, workers - workers // 4)
    ring = Ring(who)
    out = []
    for number, frame in enumerate(b.frames(who, 16, b.slow_link(4))):
        ring.add(frame)
        if number > 12:
            view = ring.view()
            out.append(Snapshot(seq=number, view=view, report=b.fault_report(view), source="bench"))
    return out


async def ticks(workers: int, place: Place | None = None) -> None:
    """Print what the drawing thread takes for a new screen, and the share of a core at one a second."""
    feed = Beat(snapshots(workers))
    app = TopApp(feed)
    drawing, building = [], []
    real = app._build

    def timed(*args: object) -> None:
        begun = time.thread_time()
        real(*args)  # type: ignore[arg-type]
        building.append((time.thread_time() - begun) * 1e3)

    app._build = timed  # type: ignore[method-assign]
    draw, entered = app._draw, [0.0]

    def noted(*args: object) -> None:
        entered[0] = time.thread_time()
        draw(*args)  # type: ignore[arg-type]

    app._draw = noted  # type: ignore[method-assign]
    async with app.run_test(size=SIZE) as pilot:
        await app.settled()
        if place is not None:
            app.action_open(place.kind, place.id)
            await pilot.pause()
            await app.settled()
        for _ in range(TICKS):
            feed.turn += 1
            app._rest_until_s = 0.0
            app.tick()
            await app.settled()
            await pilot.pause()
            # From the moment that data is there; waiting for it costs this thread nothing but in a test.
            drawing.append((time.thread_time() - entered[0]) * 1e3)
        wall, thread, whole = time.monotonic(), time.thread_time(), time.process_time()
        while time.monotonic() - wall < SECONDS:
            feed.turn += 1
            await asyncio.sleep(1.0)
        length = time.monotonic() - wall
        shares = (time.thread_time() - thread) / length, (time.process_time() - whole) / length
    where = place.label if place is not None else "main"
    print(
        f"{workers:>6} rows  {where:<16} drawing thread median {statistics.median(drawing):6.1f} ms p95 {p95(drawing):6.1f} ms"
        f"   making data median {statistics.median(building):7.1f} ms   at 1 Hz drawing {shares[0]:5.1%} of a core, all {shares[1]:5.1%}",
        flush=True,
    )


# the start


class Pages(BaseHTTPRequestHandler):
    """Serve one recorded page, whatever is asked for."""

    page = b""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(self.page)))
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def serve(count: int) -> list[str]:
    """Serve a recorded page at so many addresses; return them."""
    Pages.page = (REPOSITORY / "fixtures/expositions/vllm-0.32.0-nixl/decode-load-c4.prom").read_bytes()
    found = []
    for _ in range(count):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found.append(f"http://127.0.0.1:{server.server_address[1]}")
    return found


def first(command: list[str], wanted: str, env: dict[str, str]) -> tuple[float, float] | str:
    """Return (wall seconds until a text stands on the terminal, CPU seconds of the process until then), or what it said."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, env)
    begun, seen = time.monotonic(), b""
    cpu = 0.0
    try:
        while time.monotonic() - begun < 60:
            if select.select([fd], [], [], 0.02)[0]:
                try:
                    seen += os.read(fd, 65536)
                except OSError:
                    break
                if re.search(wanted.encode(), seen):
                    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                    return time.monotonic() - begun, cpu
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(fd)
    return (
        re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", seen).decode(errors="replace").strip().splitlines()[0][:90]
        if seen
        else "nothing"
    )


def start() -> None:
    """Print the start of `pdops top`, and of the others where they are."""
    urls = serve(64)
    with tempfile.TemporaryDirectory() as folder:
        inventory = Path(folder) / "pdops.yaml"
        rows = [
            f"  - {{id: {role}-{i}, role: {role}, pool: {role}, url: '{url}', engine: vllm}}"
            for i, url in enumerate(urls)
            for role in ("prefill" if i < 16 else "decode",)
        ]
        inventory.write_text(
            "\n".join(["version: 1", "cluster: bench", "slo: {ttft_s: 1.0, itl_s: 0.05}", "workers:", *rows])
        )
        env = {**os.environ, "PYTHONPATH": ":".join(PARTS), "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
        pdops = [sys.executable, "-m", "pdops", "top", "-c", str(inventory)]
        _say("pdops top, first table", [first(pdops, "PREFILL", env) for _ in range(STARTS)])
        _say("pdops top, 64 of 64 up", [first(pdops, "up 64/64", env) for _ in range(STARTS)])
        _say(
            "python and textual alone",
            [first([sys.executable, "-c", "import textual.app, textual.widgets; print('ready')"], "ready", env)] * 1,
        )
        others = os.environ.get("PDOPS_BENCH_OTHERS")
        if others:
            htop = [f"{others}/vllm-htop", "--url", *urls]
            _say("vllm-htop, a table", [first(htop, "KV", env) for _ in range(STARTS)])
            _say("nvitop", [first([f"{others}/nvitop"], "GPU-Util", env)])


def _say(what: str, found: list[tuple[float, float] | str]) -> None:
    times = [f for f in found if isinstance(f, tuple)]
    if not times:
        print(f"{what:<26} did not start: {found[0]}", flush=True)
        return
    wall, cpu = [t[0] for t in times], [t[1] for t in times]
    print(
        f"{what:<26} wall least {min(wall):5.2f} s median {statistics.median(wall):5.2f} s   CPU until then median {statistics.median(cpu):5.2f} s",
        flush=True,
    )


# memory


class Hour:
    """An hour of a cluster as a recording, made while it is read: buckets every ten seconds, all else every second."""

    notes: tuple[Note, ...] = ()
    interval_s = 1.0

    def __init__(self, cluster: Cluster, seconds: int) -> None:
        self.cluster = cluster
        self._seconds = seconds
        self.start_s, self.end_s = b.START_S, b.START_S + seconds
        self._small: dict[Layout, tuple[Layout, list[int]]] = {}

    def iter_frames(self) -> Iterator[Frame]:
        """Yield the frames."""
        for number, frame in enumerate(b.frames(self.cluster, self._seconds)):
            yield frame if number % 10 == 0 else Frame(at_s=frame.at_s, scrapes=tuple(map(self._part, frame.scrapes)))

    def _part(self, scrape: Scrape) -> Scrape:
        assert scrape.layout is not None
        assert scrape.values is not None
        if scrape.layout not in self._small:
            keep = [i for i, name in enumerate(scrape.layout.series) if "le=" not in name]
            self._small[scrape.layout] = Layout(tuple(scrape.layout.series[i] for i in keep)), keep
        layout, keep = self._small[scrape.layout]
        return Scrape(
            worker=scrape.worker,
            engine=scrape.engine,
            at_s=scrape.at_s,
            layout=layout,
            values=scrape.values[keep],
            full=False,
        )


def resident() -> float:
    """Return the resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


async def memory(workers: int, seconds: int) -> None:
    """Print the resident memory while a recording is played at x64, at every sixth of it."""
    before = resident()
    hour = Hour(b.cluster(workers // 4, workers - workers // 4), seconds)
    feed = ReplayFeed(hour, diagnose, speed=64.0)
    feed.start()
    found: list[str] = []
    begun = time.monotonic()
    async with TopApp(feed).run_test(size=SIZE):
        for part in range(1, 7):
            while True:
                latest = feed.latest()
                if (
                    latest is not None
                    and latest.position is not None
                    and latest.view.at_s >= b.START_S + part * seconds / 6 - 1
                ):
                    break
                if feed.failure is not None:
                    raise feed.failure
                await asyncio.sleep(0.2)
            found.append(f"{part * seconds // 60 / 6:.0f} min {resident():.0f}")
    feed.control(Command("pause"))
    feed.stop()
    took = time.monotonic() - begun
    print(
        f"{workers:>6} rows, {seconds / 60:.0f} min played in {took:.0f} s: before {before:.0f} MB; then "
        + ", ".join(found)
        + " MB",
        flush=True,
    )


def alone(*words: str) -> None:
    """Run a part of this in a process of its own, so that parts do not share memory."""
    subprocess.run([sys.executable, __file__, *words], check=True)


if __name__ == "__main__":
    asked = sys.argv[1:] or ["start", "tick", "memory"]
    if asked[0] == "memory" and len(asked) == 3:
        asyncio.run(memory(int(asked[1]), int(asked[2])))
        sys.exit()
    if "start" in asked:
        start()
    if "tick" in asked:
        for rows in (64, 512, 2048):
            asyncio.run(ticks(rows))
        for place in (Place("worker", "decode-1"), Place("pool", "decode"), Place("matrix"), Place("diagnosis")):
            asyncio.run(ticks(512, place))
    if "memory" in asked:
        alone("memory", "64", "3600")
        alone("memory", "512", "960")
