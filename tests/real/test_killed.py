"""Decode killed on the real pair: requests through vllm-router fail until its checks have seen it, and diagnose names it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from pdops.actuate import processes
from pdops.clock import WallClock
from pdops.diagnose.encode import schema
from pdops.reference import engine_env, pages, profiles, routers
from pdops.reference.running import Running
from pdops.reference.spec import RouterSpec
from tests.real.conftest import DECODE, pdops
from tests.real.test_live import targets

pytestmark = [pytest.mark.real, pytest.mark.kills, pytest.mark.timeout(900)]
CLOCK = WallClock()


@pytest.fixture(scope="module")
def router(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouterSpec]:
    """The other router beside our own, with the command line that `pdops up --router vllm-router` uses."""
    if not (running.python.parent / "vllm-router").exists():
        engine_env.add(running.python, routers.REQUIREMENTS, print)
    port, metrics = profiles.free_ports(2)
    spec = RouterSpec(kind="vllm-router", port=port, metrics_port=metrics)
    command = routers.command(replace(running.spec, router=spec), running.home, running.python)
    folder = tmp_path_factory.mktemp("vllm-router")
    env = {k: os.environ[k] for k in ("PATH", "HOME") if k in os.environ}
    ref = processes.spawn(command, log=folder / "log", mark=str(folder), env=env)
    try:
        _until(lambda: routers.not_ready(spec) is None, folder / "log")
        yield spec
    finally:
        processes.stop(ref, grace_s=5)
        assert not processes.alive(ref)


@pytest.fixture(scope="module")
def dead(running: Running) -> Iterator[None]:
    """Decode killed, for those tests that look at a dead one; an engine starts too slowly for one each."""
    running.kill(DECODE)
    try:
        yield
    finally:
        running.start(DECODE)
        running.wait_ready(DECODE)


def _until(true: Callable[[], bool], log: Path, limit_s: float = 90.0) -> None:
    end = CLOCK.monotonic() + limit_s
    while not true():
        assert CLOCK.monotonic() < end, log.read_text()[-2000:]
        time.sleep(0.3)


def _ask(running: Running, router: RouterSpec) -> str:
    body = {"model": running.spec.served_model, "prompt": "one more request " * 20, "max_tokens": 8, "temperature": 0}
    answer = pages.post(f"{router.url}/v1/completions", body, 60.0)
    return str(answer["choices"][0]["text"])


def test_vllm_router_hands_over_kv(running: Running, router: RouterSpec) -> None:
    moved = "vllm:nixl_bytes_transferred_sum"
    before = pages.total(running.metrics(DECODE), moved) or 0.0
    assert _ask(running, router)
    _until(lambda: (pages.total(running.metrics(DECODE), moved) or 0.0) > before, running.log(DECODE))
    page = pages.get(f"http://{router.host}:{router.metrics_port}/metrics")
    assert pages.total(page, "vllm_router_pd_requests_total") is not None


def test_vllm_router_fails_requests_until_its_checks_see_the_dead_engine(
    running: Running, router: RouterSpec, dead: None
) -> None:
    with pytest.raises(OSError):
        _ask(running, router)
    _until(lambda: routers.not_ready(router) is not None, running.log(DECODE))


def test_a_killed_decode_worker_is_named(running: Running, load: None, dead: None) -> None:
    done = pdops("diagnose", *targets(running), "--for", "20", "--json")
    report = json.loads(done.stdout)
    jsonschema.validate(report, schema())
    assert (report["verdict"], done.returncode) == ("fault", 1), done.stdout
    top = report["hypotheses"][0]
    assert (top["cause"], top["scopes"]) == ("decode-down", [{"worker": "decode-0"}])
