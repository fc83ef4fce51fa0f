"""The PromQL source on Debian's Prometheus 2.42 and VictoriaMetrics 1.79, scraping recorded vLLM pages whose counters move.

Both servers run on ports of loopback that the system chose, with storage in a temporary folder, and are stopped again.
A current prometheus_client answers Prometheus 2.42 with ':' written as '_', and VictoriaMetrics with ':' as it is.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pdops.catalog.binding import Column, bind
from pdops.catalog.names import split_series, wanted_names
from pdops.errors import UsageError
from pdops.history.readings import Readings
from pdops.history.ring import Ring
from pdops.model.cluster import Cluster, Role, Worker
from pdops.model.frame import EventKind, Frame, Layout
from pdops.model.view import Presence
from pdops.reference.profiles import free_ports
from pdops.sources.promql import PromqlSettings, PromqlSource
from pdops.stats.histograms import quantile

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]
PATIENCE_S = 120.0
Page = Callable[[str], bytes]


# engines


class Moving:
    """A recorded page whose counters and histograms grow at a steady pace, so that every ratio stays as recorded."""

    def __init__(self, body: bytes) -> None:
        self.families = list(text_string_to_metric_families(body.decode()))
        self.start = time.monotonic()

    def collect(self) -> Iterator[Metric]:
        grown = 1.0 + (time.monotonic() - self.start) / 10.0
        for family in self.families:
            out = Metric(family.name, family.documentation, family.type)
            for sample in family.samples:
                grows = family.type in ("counter", "histogram") and not sample.name.endswith("_created")
                out.add_sample(sample.name, sample.labels, sample.value * (grown if grows else 1.0))
            yield out


class _Quiet(WSGIRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


@dataclass
class EngineDouble:
    """Serves a page at /metrics as prometheus_client negotiates it, and at /plain with names as they are."""

    server: _Server

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_port}"

    @classmethod
    def start(cls, body: bytes) -> EngineDouble:
        registry = CollectorRegistry()
        registry.register(Moving(body))  # type: ignore[arg-type]
        negotiated = make_wsgi_app(registry)

        def app(environ: Any, respond: Any) -> Any:
            if environ["PATH_INFO"] != "/plain":
                return negotiated(environ, respond)
            respond("200 OK", [("Content-Type", "text/plain; version=0.0.4")])
            return [generate_latest(registry)]

        server = make_server("127.0.0.1", 0, app, _Server, _Quiet)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return cls(server)

    def stop(self) -> None:
        """Stop serving; may be called twice."""
        self.server.shutdown()
        self.server.server_close()


@contextmanager
def serving(*bodies: bytes) -> Iterator[list[EngineDouble]]:
    engines = [EngineDouble.start(body) for body in bodies]
    try:
        yield engines
    finally:
        for engine in engines:
            engine.stop()


# servers


PIDS: dict[str, int] = {}


def cpu_s(url: str) -> float:
    """Return the CPU seconds that a server has used."""
    fields = Path(f"/proc/{PIDS[url]}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def binary(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        why = f"{name} is not installed; run .ci/install-services.sh"
        if os.environ.get("PDOPS_REQUIRE_REAL") == "1":
            pytest.fail(why)
        pytest.skip(why)
    return found


def free_port() -> int:
    return free_ports(1)[0]


@contextmanager
def running(kind: str, folder: Path, targets: Iterable[tuple[str, str]] = (), path: str = "/metrics") -> Iterator[str]:
    """Run a server that scrapes (address, role) every two seconds; yield its URL."""
    config = folder / "scrape.yml"
    groups = "".join(f"  - targets: ['{a}']\n    labels: {{role: {r}, cluster: x}}\n" for a, r in targets)
    jobs = f"\n- job_name: engines\n  metrics_path: {path}\n  static_configs:\n{groups}" if groups else " []\n"
    config.write_text(f"global: {{scrape_interval: 2s, scrape_timeout: 2s}}\nscrape_configs:{jobs}")
    port = free_port()
    here = f"127.0.0.1:{port}"
    if kind == "prometheus":
        flags = [f"--config.file={config}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={here}"]
        ready = f"http://{here}/-/ready"
    else:
        flags = [f"-promscrape.config={config}", f"-storageDataPath={folder}/data", f"-httpListenAddr={here}"]
        flags += ["-memory.allowedBytes=256MiB", "-retentionPeriod=1d", "-maxLabelsPerTimeseries=60"]
        ready = f"http://{here}/health"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([binary(kind), *flags], stdout=log, stderr=log, start_new_session=True)
    try:
        wait(lambda: process.poll() is not None or http_ok(ready), f"{kind} to be ready", folder / "log")
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        PIDS[f"http://{here}"] = process.pid
        yield f"http://{here}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def http_ok(url: str, body: bytes | None = None) -> bool:
    try:
        with urllib.request.urlopen(url, data=body, timeout=30) as answer:
            return bool(200 <= answer.status < 300)
    except OSError:
        return False


def wait(condition: Callable[[], bool], what: str, log: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited in vain for {what}:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)


def settings(url: str, **changes: Any) -> PromqlSettings:
    fast = {"interval_s": 2.0, "window_s": 8.0, "history_s": 0.0, "selector": '{cluster="x"}'}
    return PromqlSettings(**{"url": url, **fast, **changes})


async def until(source: PromqlSource, ring: Ring, enough: Callable[[Frame], bool]) -> Frame:
    """Feed a ring until a frame is as wanted."""
    end = time.monotonic() + PATIENCE_S
    async with aclosing(source.frames()) as frames:  # type: ignore[type-var]
        async for frame in frames:
            ring.cluster = source.cluster
            ring.add(frame)
            if enough(frame):
                return frame
            if time.monotonic() > end:
                pytest.fail(f"waited in vain; notes: {source.notes}; last: {frame.scrapes[:3]}")
    raise AssertionError("the source ended")


@asynccontextmanager
async def connected(
    chosen: PromqlSettings, workers: int, cluster: Cluster | None = None
) -> AsyncIterator[PromqlSource]:
    """Connect as soon as the server has scraped all targets."""
    source = PromqlSource(chosen, cluster=cluster)
    end = time.monotonic() + PATIENCE_S
    try:
        while True:
            try:
                await source.connect()
                if len(source.cluster.workers) >= workers:
                    break
            except UsageError:
                pass
            assert time.monotonic() < end
            await asyncio.sleep(0.2)
        yield source
    finally:
        await source.aclose()


def complete(frame: Frame) -> bool:
    """Whether both pools have rates of their last histogram."""
    found = {s.endpoint: s for s in frame.scrapes if s.worker == "prometheus"}
    page = found["pools"]
    if page.layout is None or page.values is None:
        return False
    given = dict(zip(page.layout.series, page.values.tolist(), strict=True))
    want = ('ttft_seconds:rate_sum{scope="pool:prefill"}', 'ttft_seconds:rate_sum{scope="pool:decode"}')
    return all(math.isfinite(given.get(name, math.nan)) for name in want)


def answering(frame: Frame) -> set[str]:
    """Return the workers that answer."""
    return {s.worker for s in frame.scrapes if s.worker != "prometheus" and s.error is None}


# as recorded


def recorded(body: bytes) -> dict[Column, float]:
    """Return the canonical columns of a page, read directly."""
    series, numbers = [], []
    for line in body.decode().splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            series.append(name)
            numbers.append(float(value))
    binding = bind("vllm", Layout(tuple(series)))
    return dict(zip(binding.columns, binding.apply(np.array(numbers)).tolist(), strict=True))


def direct_quantile(columns: dict[Column, float], signal: str, q: float) -> tuple[float, str | None] | None:
    edges = sorted(
        (float(c.part[3:]), v) for c, v in columns.items() if c.signal == signal and c.part.startswith("le=")
    )
    return quantile(np.array([e for e, _ in edges]), np.array([v for _, v in edges]), q)


KINDS = [("prometheus", "/metrics", True), ("prometheus", "/plain", False), ("victoria-metrics", "/metrics", False)]


@pytest.mark.parametrize(("kind", "path", "escaped"), KINDS, ids=["prometheus-escaped", "prometheus-plain", "victoria"])
async def test_pools_say_what_the_pages_say(kind: str, path: str, escaped: bool, page: Page, tmp_path: Path) -> None:
    bodies = {
        "prefill": page("vllm-0.32.0-nixl/prefill-load-c4.prom"),
        "decode": page("vllm-0.32.0-nixl/decode-overload-mid.prom"),
    }
    binary(kind)
    async with AsyncExitStack() as stack:
        engines = stack.enter_context(serving(*bodies.values()))
        targets = [(e.address, role) for role, e in zip(bodies, engines, strict=True)]
        targets.append((f"127.0.0.1:{free_port()}", "decode"))
        url = stack.enter_context(running(kind, tmp_path, targets, path))
        source = await stack.enter_async_context(connected(settings(url), 3))
        ring = Ring(source.cluster, interval_s=2.0)
        # A busy machine may let a scrape time out, so that all are waited for.
        frame = await until(source, ring, lambda f: complete(f) and len(answering(f)) == 2)
        names = {w.url: w.id for w in source.cluster.workers}
        errors = {s.worker: s.error for s in frame.scrapes if s.worker != "prometheus"}
        assert errors == {
            names[f"http://{targets[0][0]}"]: None,
            names[f"http://{targets[1][0]}"]: None,
            names[f"http://{targets[2][0]}"]: "up == 0 in Prometheus",
        }
        assert ("names-escaped" in [n.code for n in source.notes]) is escaped
        ask = Readings(ring.view())
        for role, body in bodies.items():
            scope, columns = f"pool:{role}", recorded(body)
            for signal in ("kv_cache_usage", "running_requests", "queue_depth", "queue_depth_capacity"):
                assert ask.last(scope, signal).value == pytest.approx(columns[Column("", signal)]), (scope, signal)
            for signal in ("ttft_seconds", "queue_seconds", "prefill_seconds", "e2e_seconds"):
                total = columns[Column("", signal, "sum")], columns[Column("", signal, "count")]
                assert ask.mean(scope, signal).value == pytest.approx(total[0] / total[1], rel=0.01), (scope, signal)
                straight = direct_quantile(columns, signal, 0.95)
                got = ask.quantile(scope, signal, 0.95)
                assert straight is not None
                assert got.value == pytest.approx(straight[0], rel=0.01), (scope, signal)
                assert got.bound == straight[1]
            hits = columns[Column("", "request_success")] / columns[Column("", "generated_tokens")]
            rates = ask.rate(scope, "request_success").value, ask.rate(scope, "generated_tokens").value
            assert rates[0] is not None
            assert rates[1]
            assert rates[0] / rates[1] == pytest.approx(hits, rel=0.01)
        decode = recorded(bodies["decode"])
        bandwidth = decode[Column("", "kv_transfer_bytes")] / decode[Column("", "kv_transfer_seconds", "sum")]
        moved = ask.rate("pool:decode", "kv_transfer_bytes").value
        took = ask.mean("pool:decode", "kv_transfer_seconds").value
        events = ask.rate("pool:decode", "kv_transfer_seconds").value
        assert moved
        assert took
        assert events
        assert moved / (took * events) == pytest.approx(bandwidth, rel=0.05)


@pytest.mark.parametrize("kind", ["prometheus", "victoria-metrics"])
async def test_an_engine_that_dies_is_down_and_its_pool_falls_silent(kind: str, page: Page, tmp_path: Path) -> None:
    body = page("vllm-0.32.0-nixl/decode-load-c4.prom")
    binary(kind)
    async with AsyncExitStack() as stack:
        engines = stack.enter_context(serving(body, body))
        workers = tuple(
            Worker(id=f"{role}-0", role=role, pool=role.value, url=f"http://{e.address}")
            for role, e in zip((Role.PREFILL, Role.DECODE), engines, strict=True)
        )
        cluster = Cluster(name="x", workers=workers)
        # No role label fits: the pools are told by address.
        with running(kind, tmp_path, [(e.address, "infer") for e in engines]) as url:
            source = await stack.enter_async_context(connected(settings(url), 2, cluster))
            ring = Ring(cluster, interval_s=2.0)
            await until(source, ring, lambda f: complete(f) and len(answering(f)) == 2)
            engines[1].stop()
            await until(source, ring, lambda _: ring.view().health["decode-0"].presence is Presence.DOWN)
            assert ring.view().health["decode-0"].why == "does not answer: up == 0 in Prometheus"
            await until(source, ring, lambda f: answering(f) == {"prefill-0"})
            frame = await until(source, ring, lambda f: not silent(f, "prefill") and silent(f, "decode"))
            assert frame.scrapes


def silent(frame: Frame, pool: str) -> bool:
    (page,) = [s for s in frame.scrapes if s.endpoint == "pools"]
    if page.layout is None or page.values is None:
        return False
    given = dict(zip(page.layout.series, page.values.tolist(), strict=True))
    return math.isnan(given.get(f'running_requests{{scope="pool:{pool}"}}', math.nan))


# a past that is written, not lived through

SCRAPE_S = 15


def past(
    kind: str, folder: Path, lines: Iterable[tuple[str, list[tuple[float, float]]]], url: str | None = None
) -> None:
    """Write samples: as blocks for a Prometheus that is not running yet, or into a running VictoriaMetrics."""
    unit = 1.0 if kind == "prometheus" else 1000.0
    text = "".join(f"{name} {v!r} {t * unit:.0f}\n" for name, points in lines for t, v in points)
    if kind == "prometheus":
        (folder / "past.txt").write_text(text + "# EOF\n")
        command = [binary("promtool"), "tsdb", "create-blocks-from", "openmetrics", "past.txt", "data"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=PATIENCE_S)
    else:
        assert http_ok(f"{url}/api/v1/import/prometheus", text.encode())
        assert http_ok(f"{url}/internal/force_flush")


def story(now: float) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Tell of 20 minutes: decode is not seen for three of them and restarts; a second decode is gone for two minutes."""
    times = [now - 1200 + i * SCRAPE_S for i in range(1200 // SCRAPE_S + 1)]
    for name, role, seen in (
        ("p:1", "prefill", times),
        ("d:1", "decode", [t for t in times if not now - 600 <= t < now - 420]),
        ("d:2", "decode", [t for t in times if t < now - 120]),
    ):
        labels = f'{{cluster="x",instance="{name}",job="engines",role="{role}"}}'
        yield "up" + labels, [(t, 1.0) for t in seen]
        yield "vllm:num_requests_running" + labels, [(t, 5.0 if t < now - 600 else 8.0) for t in seen]
        yield "vllm:generation_tokens_total" + labels, [(t, 100.0 * (t - times[0])) for t in seen]
        began = now - 430 if name == "d:1" else now - 9000
        yield "process_start_time_seconds" + labels, [(t, now - 9000 if t < now - 600 else began) for t in seen]


@pytest.mark.parametrize("kind", ["prometheus", "victoria-metrics"])
async def test_history_is_there_at_once_with_its_gaps(kind: str, tmp_path: Path) -> None:
    binary(kind)
    now = float(int(time.time()))
    lines = sorted(story(now), key=lambda line: line[0].partition("{")[0])
    if kind == "prometheus":
        past(kind, tmp_path, lines)
    async with AsyncExitStack() as stack:
        url = stack.enter_context(running(kind, tmp_path))
        if kind != "prometheus":
            past(kind, tmp_path, lines, url)
        chosen = settings(url, interval_s=10.0, window_s=60.0, history_s=900.0)
        source = await stack.enter_async_context(connected(chosen, 3))
        ring = Ring(source.cluster, interval_s=10.0)
        frames: list[Frame] = []

        def live(frame: Frame) -> bool:
            frames.append(frame)
            return frame.at_s > now - 10

        await until(source, ring, live)
        assert len(frames) == 88
        view = ring.view()
        running_requests, rate = (
            view.series["pool:decode", name][0] for name in ("running_requests", "generated_tokens.rate")
        )
        steps = dict(zip((np.rint(running_requests.t - now)).tolist(), running_requests.v.tolist(), strict=True))  # type: ignore[union-attr]
        before = [v for t, v in steps.items() if t < -620]
        assert before
        assert set(before) == {10.0}
        # Servers repeat a value for up to five minutes: what decode d:1 last said does not count in its gap.
        assert {v for t, v in steps.items() if -550 < t < -430} == {8.0}
        assert {v for t, v in steps.items() if -400 < t < -130} == {16.0}
        # Nor do rates bridge it.
        inside = (rate.t > now - 520) & (rate.t < now - 425)  # type: ignore[union-attr]
        assert set(np.rint(rate.v[inside]).tolist()) <= {100.0}  # type: ignore[union-attr]
        long_ago = rate.t < now - 620  # type: ignore[union-attr]
        assert rate.v[long_ago] == pytest.approx(200.0, rel=0.02)  # type: ignore[union-attr]
        restarts = [(e.worker, round(e.t_s - now)) for f in frames for e in f.events if e.kind is EventKind.RESTART]
        assert restarts == [("d-1", -430)]
        # d:2 has a value for five minutes after its last sample, but nothing has been heard of it.
        heard = {s.worker for s in frames[-1].scrapes if s.error is None}
        assert "d-2" not in heard
        assert {"p-1", "d-1"} <= heard
        assert steps[max(steps)] == 8.0
        assert view.health["d-2"].presence in (Presence.STALE, Presence.DOWN)
        gap = next(f for f in frames if abs(f.at_s - (now - 480)) <= 5.0)
        assert "d-1" not in {s.worker for s in gap.scrapes if s.error is None}


# how much it asks


@pytest.mark.bench
@pytest.mark.parametrize("workers", [2, 64, 512])
async def test_one_tick(workers: int, page: Page, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [
        line.rpartition(" ")[0]
        for line in page("vllm-0.32.0-nixl/decode-load-c4.prom").decode().splitlines()
        if line.startswith(("vllm:", "process_")) and "_created" not in line and "config_info" not in line
    ]
    names = [name for name in names if name.partition("{")[0] in wanted_names()]
    async with AsyncExitStack() as stack:
        url = stack.enter_context(running("victoria-metrics", tmp_path))
        # The samples reach into the future, since writing them takes a while.
        start = int(time.time()) - 90
        times = [1000 * (start + i * SCRAPE_S) for i in range(24)]
        points = f'"values":{[float(i) for i in range(24)]},"timestamps":{times}'
        for number in range(workers):
            own = {"cluster": "x", "instance": f"w{number}:8000", "role": ("prefill", "decode")[number % 2]}
            lines = [{"__name__": "up", **own}]
            for name in names:
                stem, labels = split_series(name)
                lines.append({"__name__": stem, **labels, **own})
            text = "".join(f'{{"metric":{json.dumps(metric)},{points}}}\n' for metric in lines)
            assert http_ok(f"{url}/api/v1/import", text.encode())
        assert http_ok(f"{url}/internal/force_flush")
        chosen = settings(url, interval_s=10.0, window_s=60.0, timeout_s=60.0)
        source = await stack.enter_async_context(connected(chosen, workers))
        async with aclosing(source.frames()) as frames:  # type: ignore[type-var]
            await anext(frames)
            asked = source.asked
            ours, theirs = time.process_time(), cpu_s(url)
            frame = await anext(frames)
            ours, theirs = time.process_time() - ours, cpu_s(url) - theirs
            asked = source.asked - asked
        pools = next(s for s in frame.scrapes if s.endpoint == "pools")
    assert pools.layout is not None
    with capsys.disabled():
        print(
            f"\n{workers:4d} workers, {len(names) * workers:6d} series: {asked} questions a tick, "
            f"{pools.duration_s:.2f} s, CPU {theirs:.2f} s there and {ours:.2f} s here, "
            f"{pools.size_bytes / 1024:.0f} KiB, {len(pools.layout.series)} columns"
        )
    assert asked == source.queries_per_tick
    assert source.queries_per_tick == 46
    assert pools.layout.series
