"""What tests on real components share: one deployment for all, and no skip where everything must be there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from pdops.reference import engine_env
from pdops.reference.running import Running

REQUIRED = os.environ.get("PDOPS_REQUIRE_REAL") == "1"
ROOT = Path(__file__).parents[2]
PREFILL, DECODE, ROUTER = "prefill-0", "decode-0", "router-0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what kills a part of the shared deployment after everything else."""
    items.sort(key=lambda item: item.get_closest_marker("kills") is not None)


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
def running(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The one deployment of this run, brought up and taken down by the command line."""
    place = tmp_path_factory.mktemp("deployment")
    # Both sides load at once: half the wait, and the strict order is what the drills' own deployments use.
    done = pdops("up", "--state-dir", str(place), "--order", "any", "--monitoring", timeout_s=1500)
    assert done.returncode == 0, done.stderr
    try:
        yield Running.open(place)
    finally:
        done = pdops("down", "--state-dir", str(place), "--deadline", "10")
        assert done.returncode == 0, done.stderr
