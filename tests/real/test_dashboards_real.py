"""Every panel's query on Debian's Prometheus 2.42, over what the exporter says of recordings of the real pair.

The exporter's pages of each recording are written into blocks by promtool, with the recording's own times, so nothing has
to be waited for. Prometheus listens on a port of loopback that the system chose, and is stopped again.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pdops.grafana.dashboards.build import DASHBOARDS
from pdops.grafana.dashboards.panel import Panel
from pdops.sources.recording import open_recording
from pdops_exporters.collector import ClusterCollector
from pdops_exporters.watched import Watched

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
RECORDINGS = Path(__file__).resolve().parents[2] / "fixtures" / "recordings"
PANELS = [panel for dashboard in DASHBOARDS for panel in dashboard.panels]
STEP_S = 5.0
PATIENCE_S = 60.0
_VALUES = {"cluster": ".*", "model": ".*", "pool": ".*", "worker": ".*", "__rate_interval": "30s"}


@dataclass(frozen=True)
class Played:
    """A Prometheus that knows all recordings, and when each of them was."""

    url: str
    spans: dict[str, tuple[float, float]]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    programs = [shutil.which(name) for name in ("prometheus", "promtool")]
    if None in programs:
        pytest.skip("Debian's prometheus is not installed")
    folder = tmp_path_factory.mktemp("prometheus")
    spans = {}
    for name in sorted({panel.seen_in for panel in PANELS if panel.needs is None}):
        path = RECORDINGS / f"{name}.pdrec"
        text, spans[name] = pages(path)
        source = folder / f"{name}.om"
        source.write_text(text)
        subprocess.run(
            [str(programs[1]), "tsdb", "create-blocks-from", "openmetrics", "-q", str(source), str(folder / "data")],
            check=True,
            capture_output=True,
        )
    (folder / "prometheus.yml").write_text("global: {}\n")
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
    words = [str(programs[0]), f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    words += [f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=100y", "--log.level=error"]
    process = subprocess.Popen(words)
    try:
        url = f"http://127.0.0.1:{port}"
        ready(url, process)
        yield Played(url, spans)
    finally:
        process.terminate()
        process.wait(20)


def pages(path: Path) -> tuple[str, tuple[float, float]]:
    """Return the exporter's pages of a recording as OpenMetrics with times, and its span in Unix seconds."""
    record = open_recording(path)
    watched = Watched(record.cluster, interval_s=record.interval_s, monotonic=lambda: 0.0)
    registry = CollectorRegistry()
    ClusterCollector(watched.snapshot, registry)
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
        for family in text_string_to_metric_families(generate_latest(registry).decode()):
            kinds[family.name] = family.type
            for sample in family.samples:
                labels = ",".join(f'{k}="{v}"' for k, v in sample.labels.items())
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
    pytest.fail("prometheus is not ready")


def finite(played: Played, expr: str, span: tuple[float, float]) -> int:
    """Return how many finite values an expression has over a span."""
    expr = re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda m: _VALUES[m[1] or m[2]], expr)
    asked = {"query": expr, "start": span[0], "end": span[1], "step": STEP_S}
    with urllib.request.urlopen(
        f"{played.url}/api/v1/query_range?{urllib.parse.urlencode(asked)}", timeout=30
    ) as answer:
        found = json.load(answer)
    assert found["status"] == "success"
    return sum(math.isfinite(float(v)) for series in found["data"]["result"] for _, v in series["values"])


@pytest.mark.parametrize("panel", [p for p in PANELS if p.needs is None], ids=lambda p: p.id)
def test_every_query_returns_finite_data_where_it_is_needed(panel: Panel, prometheus: Played) -> None:
    for query in panel.queries:
        assert finite(prometheus, query.expr, prometheus.spans[panel.seen_in]) > 0, query.expr


@pytest.mark.parametrize("panel", [p for p in PANELS if p.needs is not None], ids=lambda p: p.id)
def test_what_no_recording_shows_is_at_least_answered(panel: Panel, prometheus: Played) -> None:
    span = next(iter(prometheus.spans.values()))
    for query in panel.queries:
        finite(prometheus, query.expr, span)


def test_most_panels_are_shown_by_recordings() -> None:
    shown = sum(panel.needs is None for panel in PANELS)
    assert shown >= 50
