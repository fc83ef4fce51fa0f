"""Rules on Debian's promtool, Prometheus 2.42 and Alertmanager 0.25, over recordings of a real pair.

Every recording is read by the exporter and written as blocks, each under a cluster of its own name, so one Prometheus holds
them all and every expression can be asked for any moment of any of them. One test plays a recording live: the exporter's
page is scraped, Prometheus evaluates the shipped rules, and Alertmanager receives the alert.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from pdops.grafana.promlint import names
from pdops.grafana.rules import build, promtool, shipped
from pdops.grafana.rules.types import Alert, Recording
from pdops.reference.render.monitoring import alertmanager
from pdops.sources.recording import open_recording
from pdops_exporters.collector import ClusterCollector
from pdops_exporters.watched import Watched
from tests.real.test_promql_real import binary, free_port, http_ok, wait

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
RECORDINGS = Path(__file__).parents[2] / "fixtures" / "recordings"
APART_S = 6 * 3600.0
"""Seconds between two recordings in the store, so that no window and no offset sees two of them."""
STEP_S = 10.0
EVERY = build.alerts()
INFO = {alert.name for alert in EVERY if alert.severity in ("info", "none")}

SEEN = {
    "block-size-mismatch": {"PDKvTransferFailing"},
    "dtype-mismatch": {"PDKvTransferFailing"},
    "side-channel-unreachable": {"PDKvTransferFailing"},
    "version-mismatch": {"PDKvTransferFailing"},
    "decode-frozen": {"PDDecodeWorkerDown"},
    "kv-store-stopped": {"PDKvStoreDown"},
    "overload": {"PDTtftHigh", "PDTtftBurnSlow"},
    "prefill-killed-during-pull": {"PDPrefillWorkerDown"},
    "router-restart-lost-state": {"PDRouterHolds"},
    "decode-killed-replaced": {"PDDecodeWorkerDown"},
    "decode-kv-exhaustion": {"PDDecodeKvExhausted"},
    "link-cut-above-lease": {"PDKvTransferStalled", "PDRequestsFailing"},
    "link-slow": {"PDTtftHigh", "PDTtftBurnFast"},
    "long-prompt-shift": {"PDTtftHigh", "PDPrefillQueueing"},
    "peer-restart-stale-state": {"PDKvTransferFailing"},
    "prefill-abandoned": {"PDKvLeaseExpired"},
    "prefill-frozen": {"PDPrefillWorkerDown"},
    "prefill-killed": {"PDPrefillWorkerDown"},
    "router-drops-kv-params": {"PDSilentLocalPrefill"},
    "stale-pull": {"PDKvReadAfterExpiry"},
}
"""Alerts whose expression must be true at some moment of each incident; `for` is not waited for, incidents last a minute."""
MISSED = {"link-cut-below-lease", "link-lossy"}
"""Incidents of which no rule names the link: the cut ends within the minute that PDKvTransferStalled needs, and a lossy link
is neither half as fast as an hour ago nor slow beside peers, which one pair has none of."""
NOT_RECORDED = frozenset({"pair:pdops_kv_transfer_failures:rate5m"})
"""Recording rules over what no recording holds: in the one with the engine plugin's families by pair no transfer fails."""


# promtool


def tool() -> str:
    return binary("promtool")


def test_promtool_reads_the_shipped_files() -> None:
    said = promtool.check(tool(), {name: (shipped.place() / name).read_text() for name in build.files()})
    assert said is None, said


@pytest.mark.parametrize("alert", [a for a in EVERY if a.inputs], ids=lambda a: a.id)
def test_situations_of_an_alert(alert: Alert) -> None:
    said = promtool.test(tool(), (alert,))
    assert said is None, said


def wrong(alert: Alert) -> Iterator[str]:
    """Yield expressions that are wrong in one way each."""
    turned = {" > ": " < ", " < ": " > ", " >= ": " < ", " == ": " != "}
    for sign, other in turned.items():
        if sign in alert.expr:
            yield alert.expr.replace(sign, other, 1)
            break
    for role, other in (("prefill", "decode"), ("decode", "prefill")):
        if f'role="{role}"' in alert.expr:
            yield alert.expr.replace(f'role="{role}"', f'role="{other}"', 1)
            break
    limit = re.search(r"(?<=> )\d*\.?\d+(?=$| and| unless)", alert.expr)
    if limit is not None and float(limit[0]) > 0:
        yield alert.expr[: limit.start()] + f"{2 * float(limit[0]):g}" + alert.expr[limit.end() :]


@pytest.mark.parametrize("alert", [a for a in EVERY if a.inputs], ids=lambda a: a.id)
def test_situations_of_an_alert_tell_a_wrong_expression(alert: Alert) -> None:
    for expr in wrong(alert):
        assert promtool.test(tool(), (dataclasses.replace(alert, expr=expr),)) is not None, expr


# recordings in a store


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


def samples_of(name: str, start_s: float) -> tuple[str, float]:
    """Return what the exporter would have told during a recording as OpenMetrics text with times, and its length."""
    record = open_recording(RECORDINGS / f"{name}.pdrec")
    watched = Watched(
        dataclasses.replace(record.cluster, name=name), interval_s=record.interval_s, monotonic=lambda: 0.0
    )
    registry = CollectorRegistry()
    collector = ClusterCollector(watched.snapshot, registry)
    lines, due_s, offset = [], 0.0, 0.0
    for frame in record.iter_frames():
        watched.add(frame)
        offset = frame.at_s - record.start_s
        if offset < due_s:
            continue
        due_s = offset + STEP_S
        for family in collector.collect():
            for sample in family.samples:
                labels = ",".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in sample.labels.items())
                lines.append(f"{sample.name}{{{labels}}} {sample.value} {start_s + offset:.3f}")
    return "\n".join(lines) + "\n", offset


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
                labels = ",".join(
                    f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in series["metric"].items() if k != "__name__"
                )
                lines += [f"{rule.name}{{{labels}}} {value} {t:.3f}" for t, value in series["values"]]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    """Give a Prometheus with what the exporter told of every recording, and what the recording rules made of it."""
    folder = tmp_path_factory.mktemp("stored")
    found = sorted(path.stem for path in RECORDINGS.glob("*.pdrec"))
    base = (time.time() // 7200 - 3 * (len(found) + 2)) * 7200
    spans = {}
    for number, name in enumerate(found):
        start_s = base + number * APART_S
        text, length_s = samples_of(name, start_s)
        blocks(folder, text)
        spans[name] = (start_s, start_s + length_s)
    config: dict[str, Any] = {"scrape_configs": []}
    flags = ("--storage.tsdb.retention.time=60d",)
    for rules in levels():
        with prometheus(folder, config, *flags) as url:
            text = evaluated(Stored(url, spans), rules)
        blocks(folder, text)
    with prometheus(folder, config, *flags) as url:
        yield Stored(url, spans)


def finite(found: list[dict[str, Any]]) -> bool:
    return any(math.isfinite(float(value)) for series in found for _, value in series["values"])


@pytest.mark.parametrize("rule", build.recorded(), ids=lambda r: r.name)
def test_a_recording_rule_gives_finite_data_in_some_recording(rule: Recording, stored: Stored) -> None:
    given = [name for name in stored.spans if finite(stored.ask(rule.name, name))]
    if rule.name in NOT_RECORDED:
        assert given == [], f"{rule.name} has data now: take it off the list"
        return
    assert given, f"{rule.name} has no data in any recording"
    for series in stored.ask(rule.name, given[0]):
        assert set(series["metric"]) - {"__name__"} <= set(rule.keeps)


def true_at_some_moment(store: Stored, name: str) -> set[str]:
    return {alert.name for alert in EVERY if alert.name != "PDExporterAbsent" and store.ask(alert.expr, name)}


def test_no_alert_but_the_watchdog_is_true_in_a_healthy_recording(stored: Stored) -> None:
    assert true_at_some_moment(stored, "healthy-load") - INFO == set()


@pytest.mark.parametrize("name", SEEN)
def test_an_incident_makes_its_alert_true(name: str, stored: Stored) -> None:
    assert true_at_some_moment(stored, name) >= SEEN[name]


def test_every_recording_of_an_incident_is_asked(stored: Stored) -> None:
    assert set(SEEN) | MISSED | {"healthy-load"} == set(stored.spans)


@pytest.mark.parametrize("name", sorted(MISSED))
def test_what_is_missed_is_known(name: str, stored: Stored) -> None:
    assert not true_at_some_moment(stored, name) & {"PDKvTransferStalled", "PDKvTransferSlow", "PDKvTransferFailing"}


# live


class Receiver(ThreadingHTTPServer):
    """Takes what Alertmanager sends to a webhook."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receive)
        self.alerts: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Receive(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.alerts += body["alerts"]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Player(ThreadingHTTPServer):
    """Serves the exporter's page of a recording that goes on by itself from `from_s`, a frame a second."""

    def __init__(self, name: str, from_s: float) -> None:
        super().__init__(("127.0.0.1", 0), _Play)
        record = open_recording(RECORDINGS / f"{name}.pdrec")
        self.watched = Watched(record.cluster, interval_s=record.interval_s, monotonic=lambda: 0.0)
        self.registry = CollectorRegistry()
        ClusterCollector(self.watched.snapshot, self.registry)
        self.frames = record.iter_frames()
        self.lock = threading.Lock()
        for frame in self.frames:
            self.watched.add(frame)
            if frame.at_s - record.start_s >= from_s:
                break
        self.began = time.monotonic()
        self.played = 0

    def page(self) -> bytes:
        with self.lock:
            while self.played < time.monotonic() - self.began:
                frame = next(self.frames, None)
                if frame is not None:
                    self.watched.add(frame)
                self.played += 1
            return generate_latest(self.registry)


class _Play(BaseHTTPRequestHandler):
    server: Player

    def do_GET(self) -> None:
        body = self.server.page()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        # Prometheus may go away in the middle of a page when it is told to end.
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering(server: ThreadingHTTPServer) -> Iterator[Any]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_alertmanager_receives_the_alert_of_an_incident(tmp_path: Path) -> None:
    """Wrong answers after an expired lease: the alert has no `for`, so it is sent while the recording plays."""
    manager = free_port()
    binary("prometheus-alertmanager")
    with answering(Receiver()) as receiver, answering(Player("stale-pull", 95.0)) as player:
        sent = alertmanager()
        sent["route"].update(receiver="test", group_wait="1s", group_interval="1s")
        sent["receivers"] = [{"name": "test", "webhook_configs": [{"url": receiver.url}]}]
        (tmp_path / "alertmanager.yml").write_text(yaml.safe_dump(sent))
        words = [
            f"--config.file={tmp_path}/alertmanager.yml",
            f"--storage.path={tmp_path}/alerts",
            f"--web.listen-address=127.0.0.1:{manager}",
            "--cluster.listen-address=",
        ]
        scraped = {"targets": [f"127.0.0.1:{player.server_address[1]}"]}
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(shipped.place() / name) for name in build.files()],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{manager}"]}]}]},
            "scrape_configs": [{"job_name": "pdops", "honor_labels": True, "static_configs": [scraped]}],
        }
        (tmp_path / "log").write_text("")

        def received() -> dict[str, dict[str, Any]]:
            return {alert["labels"]["alertname"]: alert for alert in receiver.alerts}

        with (
            program(tmp_path, "prometheus-alertmanager", f"http://127.0.0.1:{manager}/-/ready", *words),
            # What is sent before Alertmanager has been found is lost, and would be sent again after a minute only.
            prometheus(tmp_path, config, "--rules.alert.resend-delay=1s") as url,
        ):
            wait(lambda: "PDKvReadAfterExpiry" in received(), "the alert to be received", tmp_path / "prometheus.log")
            wait(lambda: "Watchdog" in received(), "the watchdog to be received", tmp_path / "prometheus.log")
            with urllib.request.urlopen(f"{url}/api/v1/rules", timeout=30) as answer:
                groups = json.loads(answer.read())["data"]["groups"]
    alert = received()["PDKvReadAfterExpiry"]
    assert alert["labels"]["severity"] == "critical"
    assert alert["labels"]["worker"] == "prefill-0"
    assert alert["labels"]["pool"] == "prefill"
    assert alert["annotations"]["runbook_url"] == build.RUNBOOK_URL + "PDKvReadAfterExpiry"
    assert "prefill-0" in alert["annotations"]["summary"]
    assert [r["lastError"] for g in groups for r in g["rules"] if r["health"] == "err"] == []
