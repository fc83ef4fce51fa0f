"""Debian's Prometheus over what the exporter says of recordings of the real pair, written into blocks by promtool."""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from pdops.reference.profiles import free_ports
from pdops.sources.recording import open_recording
from pdops_exporters.collector import ClusterCollector
from pdops_exporters.watched import Watched

RECORDINGS = Path(__file__).resolve().parents[2] / "fixtures" / "recordings"
STEP_S = 5.0
PATIENCE_S = 120.0
_VALUES = {"cluster": ".*", "model": ".*", "pool": ".*", "worker": ".*", "__rate_interval": "30s"}


@dataclass(frozen=True)
class Played:
    """A Prometheus that knows all recordings, and when each of them was."""

    url: str
    spans: dict[str, tuple[float, float]]


def installed() -> bool:
    """Say whether Prometheus and promtool are."""
    return None not in (shutil.which("prometheus"), shutil.which("promtool"))


@contextlib.contextmanager
def played(names: Sequence[str], folder: Path) -> Iterator[Played]:
    """Run a Prometheus that knows recordings by name, with their own times, on a port of loopback that the system chose."""
    spans = {}
    for name in names:
        text, spans[name] = pages(RECORDINGS / f"{name}.pdrec")
        source = folder / f"{name}.om"
        source.write_text(text)
        subprocess.run(
            ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", str(source), str(folder / "data")],
            check=True,
            capture_output=True,
        )
    (folder / "prometheus.yml").write_text("global: {}\n")
    (port,) = free_ports(1)
    words = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    words += [f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=100y", "--log.level=error"]
    process = subprocess.Popen(words)
    try:
        url = f"http://127.0.0.1:{port}"
        ready(url, process)
        yield Played(url, spans)
    finally:
        process.terminate()
        process.wait(20)


def answer(url: str, expr: str, span: tuple[float, float]) -> list[dict[str, Any]]:
    """Return what an expression of a dashboard gives over a span, as Prometheus answers a range query."""
    expr = re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda m: _VALUES[m[1] or m[2]], expr)
    asked = {"query": expr, "start": span[0], "end": span[1], "step": STEP_S}
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{urllib.parse.urlencode(asked)}", timeout=30) as reply:
        found = json.load(reply)
    assert found["status"] == "success"
    return list(found["data"]["result"])


def pages(path: Path) -> tuple[str, tuple[float, float]]:
    """Return the exporter's pages of a recording as OpenMetrics with times, and its span in Unix seconds."""
    record = open_recording(path)
    watched = Watched(record.cluster, interval_s=record.interval_s, monotonic=lambda: 0.0)
    collector = ClusterCollector(watched.snapshot, CollectorRegistry())
    lines: dict[str, list[str]] = {}
    kinds: dict[str, str] = {}
    due = 0.0
    last = record.start_s
    assert last is not None
    for frame in record.iter_frames():
        watched.add(frame)
        if frame.at_s < due:
            continue
        due, last = frame.at_s + STEP_S, frame.at_s
        for family in collector.collect():
            kinds[family.name] = family.type
            for sample in family.samples:
                labels = ",".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in sample.labels.items())
                value = "NaN" if math.isnan(sample.value) else repr(sample.value)
                lines.setdefault(family.name, []).append(f"{sample.name}{{{labels}}} {value} {frame.at_s:.3f}")
    text = "".join(f"# TYPE {name} {kinds[name]}\n" + "\n".join(found) + "\n" for name, found in lines.items())
    return text + "# EOF\n", (record.start_s or 0.0, last)


def ready(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        assert process.poll() is None, "prometheus ended"
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=2):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("prometheus is not ready")
