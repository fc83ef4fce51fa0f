"""Rules on Debian's promtool, Prometheus 2.42 and Alertmanager 0.25, over recordings of a real pair.

One test plays a recording live: the exporter's page is scraped, Prometheus evaluates the shipped rules, and Alertmanager
receives the alert.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
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

from pdops.grafana.rules import build, promtool, shipped
from pdops.grafana.rules.types import Alert, Recording
from pdops.reference.render.monitoring import alertmanager
from pdops.sources.recording import open_recording
from pdops_exporters.collector import ClusterCollector
from pdops_exporters.watched import Watched
from tests.real.stored import RECORDINGS, Stored, program, prometheus, tool
from tests.real.test_promql_real import binary, free_port, wait

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]
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
