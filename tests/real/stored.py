"""A Prometheus that holds what the exporter told of every recording, and what the shipped rules record of it.

Every recording is read by the exporter and written as blocks, each under a cluster of its own name and at a time of its own, so
that one Prometheus holds them all and every expression can be asked for any moment of any of them.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

from pdops.grafana.promlint import names
from pdops.grafana.rules import build
from pdops.grafana.rules.types import Recording
from pdops.sources.recording import open_recording
from pdops_exporters.collector import ClusterCollector
from pdops_exporters.watched import Watched
from tests.real.test_promql_real import binary, free_port, http_ok, wait

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "recordings"
APART_S = 6 * 3600.0
"""Seconds between two recordings in the store, so that no window and no offset sees two of them."""
STEP_S = 10.0


def tool() -> str:
    return binary("promtool")


@dataclasses.dataclass(frozen=True)
class Stored:
    """A Prometheus that holds every recording; `spans` tells from when to when, in Unix seconds."""

    url: str
    spans: dict[str, tuple[float, float]]

    def ask(self, expr: str, name: str) -> list[dict[str, Any]]:
        """Return every series of an expression over a recording."""
        start, end = self.spans[name]
        form = {"query": expr, "start": start, "end": end, "step": STEP_S}
        with urllib.request.urlopen(
            f"{self.url}/api/v1/query_range", data=urllib.parse.urlencode(form).encode(), timeout=60
        ) as answer:
            found = json.loads(answer.read())["data"]["result"]
        return [series for series in found if series["metric"].get("cluster", name) == name]


def samples_of(name: str, start_s: float | None = None, step_s: float = STEP_S) -> tuple[str, tuple[float, float]]:
    """Return what the exporter would have told during a recording as OpenMetrics text with times, and from when to when.

    With `start_s` it begins then, and its cluster has the recording's name.
    """
    record = open_recording(RECORDINGS / f"{name}.pdrec")
    cluster = record.cluster
    if start_s is None:
        start_s = record.start_s
    else:
        cluster = dataclasses.replace(cluster, name=name)
    watched = Watched(cluster, interval_s=record.interval_s, monotonic=lambda: 0.0)
    collector = ClusterCollector(watched.snapshot, CollectorRegistry())
    lines, due_s, offset = [], 0.0, 0.0
    for frame in record.iter_frames():
        watched.add(frame)
        offset = frame.at_s - record.start_s
        if offset < due_s:
            continue
        due_s = offset + step_s
        for family in collector.collect():
            for sample in family.samples:
                lines.append(f"{sample.name}{{{written(sample.labels)}}} {sample.value} {start_s + offset:.3f}")
    return "\n".join(lines) + "\n", (start_s, start_s + offset)


def written(labels: dict[str, str]) -> str:
    return ",".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in labels.items())


@contextmanager
def prometheus(folder: Path, config: dict[str, Any], *flags: str) -> Iterator[str]:
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    here = f"127.0.0.1:{free_port()}"
    words = [
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={here}",
    ]
    with program(folder, "prometheus", f"http://{here}/-/ready", *words, *flags):
        yield f"http://{here}"


@contextmanager
def program(folder: Path, name: str, ready: str, *words: str) -> Iterator[None]:
    """Run a program until the block ends."""
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen([binary(name), *words], stdout=out, stderr=out, start_new_session=True)
    try:
        wait(lambda: process.poll() is not None or http_ok(ready), f"{name} to be ready", log)
        assert process.poll() is None, log.read_text()[-2000:]
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def blocks(folder: Path, text: str) -> None:
    """Add samples with times to the store; Prometheus must not run."""
    (folder / "some.om").write_text(text + "# EOF\n")
    words = [tool(), "tsdb", "create-blocks-from", "openmetrics", str(folder / "some.om"), str(folder / "data")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def levels() -> list[list[Recording]]:
    """Return the recording rules such that each rests on those of earlier lists only."""
    known = {rule.name: rule for rule in build.recorded()}
    depth: dict[str, int] = {}
    for rule in build.recorded():
        depth[rule.name] = max((depth[n] + 1 for n in names(rule.expr) if n in known), default=0)
    return [[known[n] for n, d in depth.items() if d == level] for level in range(max(depth.values()) + 1)]


def evaluated(store: Stored, rules: list[Recording]) -> str:
    """Return what rules record over every recording, as OpenMetrics text with times."""
    lines = []
    for rule in rules:
        for name in store.spans:
            for series in store.ask(rule.expr, name):
                labels = written({k: v for k, v in series["metric"].items() if k != "__name__"})
                lines += [f"{rule.name}{{{labels}}} {value} {t:.3f}" for t, value in series["values"]]
    return "\n".join(lines) + "\n"


@contextmanager
def filled(folder: Path) -> Iterator[Stored]:
    """Give a Prometheus with what the exporter told of every recording, and what the recording rules made of it."""
    found = sorted(path.stem for path in RECORDINGS.glob("*.pdrec"))
    base = (time.time() // 7200 - 3 * (len(found) + 2)) * 7200
    spans = {}
    for number, name in enumerate(found):
        text, spans[name] = samples_of(name, base + number * APART_S)
        blocks(folder, text)
    config: dict[str, Any] = {"scrape_configs": []}
    flags = ("--storage.tsdb.retention.time=60d",)
    for rules in levels():
        with prometheus(folder, config, *flags) as url:
            text = evaluated(Stored(url, spans), rules)
        blocks(folder, text)
    with prometheus(folder, config, *flags) as url:
        yield Stored(url, spans)
