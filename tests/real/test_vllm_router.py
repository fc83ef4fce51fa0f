"""vllm-router in front of the real pair: it routes, and its health hides a dead engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdops.clock import WallClock
from pdops.reference import pages
from pdops.reference.running import Running
from tests.real.conftest import DECODE, ROUTER, pdops

pytestmark = [pytest.mark.real, pytest.mark.kills, pytest.mark.timeout(1500)]
CLOCK = WallClock()


@pytest.fixture(scope="module")
def routed(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    place = tmp_path_factory.mktemp("vllm-router")
    done = pdops(
        "up", "--state-dir", str(place), "--order", "any", "--router", "vllm-router", "--name", "other", timeout_s=1200
    )
    assert done.returncode == 0, done.stderr
    try:
        yield Running.open(place)
    finally:
        pdops("down", "--state-dir", str(place), "--force")


def _ask(running: Running) -> str:
    body = {"model": running.spec.served_model, "prompt": "one more request " * 20, "max_tokens": 8, "temperature": 0}
    answer = pages.post(f"{running.router_url}/v1/completions", body, 60.0)
    return str(answer["choices"][0]["text"])


def test_it_hands_over_kv_and_hides_a_dead_engine_in_its_health(routed: Running) -> None:
    before = pages.total(routed.metrics(DECODE), "vllm:nixl_bytes_transferred_sum") or 0.0
    assert _ask(routed)
    end = CLOCK.monotonic() + 60
    while (pages.total(routed.metrics(DECODE), "vllm:nixl_bytes_transferred_sum") or 0.0) <= before:
        assert CLOCK.monotonic() < end, "no KV was handed over"
    assert pages.total(routed.metrics(ROUTER), "vllm_router_pd_requests_total") is not None
    routed.kill(DECODE)
    with pytest.raises(OSError):
        _ask(routed)
    # Right after the failure its own gauge still says that the engine is well; pdops must not go by it.
    hidden = pages.total(routed.metrics(ROUTER), "vllm_router_worker_health")
    print(f"vllm_router_worker_health summed after decode was killed: {hidden}")
    done = pdops("diagnose", "-c", str(routed.inventory), "--for", "15", "--json")
    report = json.loads(done.stdout)
    assert report["hypotheses"][0]["cause"] == "decode-down"
