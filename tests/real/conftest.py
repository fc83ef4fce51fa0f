"""What tests on real components share: one pair, one pair with a store, and no skip where everything must be there.

A test is marked by what it shares, so that `make test-real` runs three processes: each deployment lives in one of them, comes
up once, and its tests keep their order.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from pdops.reference import engine_env
from pdops.reference.down import down
from pdops.reference.network import Network
from pdops.reference.profiles import Wish
from pdops.reference.running import Running
from pdops.reference.state import Home, home
from pdops.reference.up import Means, up
from tests.real.stored import Stored, filled
from tests.reference.otlp_double import CollectorDouble, collecting

REQUIRED = os.environ.get("PDOPS_REQUIRE_REAL") == "1"
ROOT = Path(__file__).parents[2]
PREFILL, DECODE, ROUTER, STORE = "prefill-0", "decode-0", "router-0", "store-0"


# Before marks choose what is run.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what kills a part of a shared deployment after everything else, and mark who shares which."""
    items.sort(key=lambda item: item.get_closest_marker("kills") is not None)
    for item in items:
        used = set(getattr(item, "fixturenames", ()))
        if "with_store" in used:
            item.add_marker(pytest.mark.store)
        elif "running" in used:
            item.add_marker(pytest.mark.pair)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where every real component must be there."""
    report = yield
    if REQUIRED and report.skipped and item.get_closest_marker("real") is not None:
        report.outcome = "failed"
        report.longrepr = f"skipped although PDOPS_REQUIRE_REAL=1: {report.longrepr}"
    return report


def pdops(*args: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user would."""
    env = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "pdops", *args]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.fixture(scope="session")
def engine_python() -> Path:
    """The engine's Python; building its environment first where it must be there."""
    python = engine_env.ensure(print) if REQUIRED else engine_env.present()
    if python is None:
        pytest.skip("no engine environment; PDOPS_REQUIRE_REAL=1 builds it")
    return python


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    """The one Prometheus of this run that holds every recording."""
    with filled(tmp_path_factory.mktemp("stored")) as found:
        yield found


@pytest.fixture(scope="session")
def spans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorDouble]:
    """What the shared pair exported as spans."""
    with collecting(tmp_path_factory.mktemp("spans") / "traces.jsonl") as collector:
        yield collector


@pytest.fixture(scope="session")
def running(engine_python: Path, spans: CollectorDouble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The one pair of this run, brought up and taken down by the command line."""
    place = tmp_path_factory.mktemp("deployment")
    # Both sides load at once: half the wait, and the strict order is what the drills' own deployments use. What a test leaves
    # on prefill on purpose is waited for, so its lease is short.
    more = ("--order", "any", "--monitoring", "--otlp", spans.url, "--lease", "15")
    done = pdops("up", "--state-dir", str(place), *more, timeout_s=1500)
    assert done.returncode == 0, done.stderr
    try:
        yield Running.open(place)
    finally:
        done = pdops("down", "--state-dir", str(place), "--deadline", "10")
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def with_store(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """The one pair with a KV store, in namespaces; prefill has few blocks, so that a handful of prompts drives one out."""
    where = home("store-test", tmp_path_factory.mktemp("store"))
    wish = Wish(name="store-test", kv_store="mooncake", network="namespaces", prefill_blocks=64)
    up(where, wish, Means(order="any"), print, lambda stages: None)
    try:
        yield where
    finally:
        down(where, deadline_s=5.0, force=False, say=print, show=lambda stages: None)
        assert Network("store-test", [PREFILL, DECODE, STORE]).leftovers() == ()


@pytest.fixture(scope="module")
def load(running: Running) -> Iterator[None]:
    """Light load for as long as the tests of a module may take; it ends by itself."""
    command = [sys.executable, "-m", "pdops.reference.load", running.router_url]
    command += [f"--model={running.spec.served_model}", "--rate=0.8", "--duration=400", "--prompt=300", "--tokens=16"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield
        process.send_signal(signal.SIGTERM)
