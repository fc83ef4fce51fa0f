"""What watches the real deployment: the engine plugin, the exporter, Prometheus and Alertmanager, and traces."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from collections.abc import Callable

import pytest

from pdops.clock import WallClock
from pdops.reference import model, pages, startup
from pdops.reference.running import Running
from tests.real.conftest import DECODE, PREFILL, ROUTER, pdops
from tests.reference.otlp_double import CollectorDouble

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

CLOCK = WallClock()
PATIENCE_S = 120.0
PAIR = {"src": PREFILL, "dst": DECODE}


def wait_for(look: Callable[[], bool]) -> None:
    end = CLOCK.monotonic() + PATIENCE_S
    while not look():
        assert CLOCK.monotonic() < end, "did not come in time"
        time.sleep(0.5)


def complete(running: Running, number: int) -> None:
    prompt = f"watched prompt {number} that nobody sent before, long enough to fill some blocks " * 4
    body = {"model": model.NAME, "prompt": prompt[:300], "max_tokens": 4, "temperature": 0}
    pages.post(f"{running.router_url}/v1/completions", body)


def moved(page: str) -> dict[str, float]:
    """What decode says of pulls, in the engine's own families and in the plugin's."""
    return {
        "stock pulls": pages.total(page, "vllm:nixl_xfer_time_seconds_count") or 0.0,
        "stock bytes": pages.total(page, "vllm:nixl_bytes_transferred_sum") or 0.0,
        "pulls": pages.total(page, "pdops_plugin_kv_transfer_seconds_count", **PAIR) or 0.0,
        "bytes": pages.total(page, "pdops_plugin_kv_transfer_bytes_total", **PAIR) or 0.0,
    }


def test_the_plugin_counts_every_pull_for_its_pair(running: Running) -> None:
    before = moved(running.metrics(DECODE))
    for number in range(3):
        complete(running, number)

    def all_there() -> bool:
        now = moved(running.metrics(DECODE))
        return now["stock pulls"] - before["stock pulls"] >= 3 and now["pulls"] == now["stock pulls"]

    wait_for(all_there)
    now = moved(running.metrics(DECODE))
    assert now["bytes"] == now["stock bytes"] > before["bytes"]
    assert pages.total(running.metrics(DECODE), "pdops_plugin_kv_handshake_seconds_count", result="ok", **PAIR) == 1


def test_prefill_tells_whose_kv_it_holds_and_lets_go(running: Running) -> None:
    made = pages.total(running.metrics(PREFILL), "pdops_plugin_kv_produced_bytes_total") or 0.0
    complete(running, 100)
    wait_for(lambda: (pages.total(running.metrics(PREFILL), "pdops_plugin_kv_produced_bytes_total") or 0.0) > made)
    wait_for(lambda: pages.total(running.metrics(PREFILL), "pdops_plugin_kv_held_requests") == 0.0)


def test_the_plugin_says_what_it_costs(running: Running) -> None:
    complete(running, 200)
    parts = ("worker", "scheduler", "exporter")
    wait_for(
        lambda: all(
            (pages.total(running.metrics(DECODE), "pdops_plugin_cpu_seconds_total", part=p) or 0.0) > 0 for p in parts
        )
    )


def test_the_exporter_shows_the_pair_and_both_roles(running: Running) -> None:
    exporter = next(s for s in running.spec.services if s.id == "exporter")

    def there() -> bool:
        page = pages.get(f"{exporter.url}/metrics")
        up = {w: pages.total(page, "pdops_worker_up", worker=w) for w in (PREFILL, DECODE)}
        return (
            up == {PREFILL: 1.0, DECODE: 1.0}
            and (pages.total(page, "pdops_pair_kv_transfer_bytes_total", **PAIR) or 0) > 0
        )

    complete(running, 300)
    wait_for(there)
    page = pages.get(f"{exporter.url}/metrics")
    assert "pdops_gpu_" not in page
    assert all(v == "0.0" for v in re.findall(r"(?m)^pdops_exporter_subject_errors_total\{.*\} (\S+)$", page))


def test_prometheus_scrapes_the_exporter_and_has_the_rules(running: Running) -> None:
    prometheus = next(s for s in running.spec.services if s.id == "prometheus")

    def up() -> bool:
        query = urllib.parse.quote('sum(pdops_worker_up{role=~"prefill|decode"})')
        found = json.loads(pages.get(f"{prometheus.url}/api/v1/query?query={query}"))["data"]["result"]
        return bool(found) and found[0]["value"][1] == "2"

    wait_for(up)
    managers = json.loads(pages.get(f"{prometheus.url}/api/v1/alertmanagers"))["data"]["activeAlertmanagers"]
    alertmanager = next(s for s in running.spec.services if s.id == "alertmanager")
    assert [m["url"] for m in managers] == [f"{alertmanager.url}/api/v2/alerts"]


def test_status_names_what_watches(running: Running) -> None:
    found = json.loads(pdops("status", "--state-dir", str(running.state_dir), "--json").stdout)
    assert {s["id"]: s["state"] for s in found["services"]} == {
        "exporter": "serving",
        "alertmanager": "serving",
        "prometheus": "serving",
    }


def test_the_start_of_each_engine_is_told_by_its_spans(running: Running, spans: CollectorDouble) -> None:
    wait_for(lambda: {s.worker for s in startup.read(spans.file).spans if s.name == "Load model"} >= {PREFILL, DECODE})
    assert set(spans.paths) == {"/v1/traces"}
    looked = ("status", "--state-dir", str(running.state_dir), "--spans", str(spans.file))
    done = pdops(*looked, "--json")
    assert done.returncode == 0, done.stdout
    told = {worker["id"]: worker["startup"] for worker in json.loads(done.stdout)["workers"]}
    for engine in (PREFILL, DECODE):
        parts = {part["span"]: part["seconds"] for part in told[engine]}
        assert parts["Load model"] > 0, parts
        print(f"{engine}: {parts}")
    assert told[ROUTER] is None, "a router loads no model"
    assert pdops(*looked).stdout.count("Load model") == 2
