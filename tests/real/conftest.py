"""What tests on real components share: one pair for all, and no skip where everything must be there."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.real.rig import engine_env
from tests.real.rig.pair import DECODE, PREFILL, Pair
from tests.real.rig.procs import Process

REQUIRED = os.environ.get("PDOPS_REQUIRE_REAL") == "1"
ROOT = Path(__file__).parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what kills a part of the shared pair after everything else."""
    items.sort(key=lambda item: item.get_closest_marker("kills") is not None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where every real component must be there."""
    report = yield
    if REQUIRED and report.skipped and item.get_closest_marker("real") is not None:
        report.outcome = "failed"
        report.longrepr = f"skipped although PDOPS_REQUIRE_REAL=1: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The one pair of this run; building the engine's environment first where it must be there."""
    python = engine_env.ensure() if REQUIRED else engine_env.present()
    if python is None:
        pytest.skip("no engine environment; PDOPS_REQUIRE_REAL=1 builds it")
    with Pair(python, tmp_path_factory.mktemp("pair")) as running:
        yield running


@pytest.fixture(scope="session")
def proxy(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, str]]:
    """The proxy before the pair, and its address."""
    command = [sys.executable, "-m", "tests.real.rig.proxy"]
    command += [f"--prefill={PREFILL}={pair.prefill.url}", f"--decode={DECODE}={pair.decode.url}"]
    process = Process("proxy", command, log=tmp_path_factory.mktemp("proxy") / "proxy.log", cwd=ROOT, capture=True)
    try:
        yield process, process.read_line(30)
    finally:
        process.stop()
