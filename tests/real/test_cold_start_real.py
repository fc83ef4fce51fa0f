"""A real cluster of which nothing runs any more is started again by its runbook, in order; without its store too."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdops.reference import model, pages
from pdops.reference.network import Network
from pdops.reference.state import Home
from tests.proofs.parts import order, power_cut, taken
from tests.real.conftest import DECODE as D
from tests.real.conftest import PREFILL as P
from tests.real.conftest import ROUTER as R
from tests.real.conftest import STORE as S
from tests.real.test_runbooks_real import Cluster, steps, variant

pytestmark = [
    pytest.mark.real,
    pytest.mark.kills,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not Network.available()[0], reason=Network.available()[1]),
]
MOONCAKE = "MooncakeStoreConnector"


@pytest.fixture
def cluster(with_store: Home, tmp_path: Path) -> Cluster:
    """A journal for each test, as one for all would rightly refuse a fourth run within an hour."""
    return Cluster(with_store.path, tmp_path)


def until(what: str, done: Callable[[], bool], limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < end, f"not within {limit_s} s: {what}"
        time.sleep(0.2)


def answered(cluster: Cluster) -> None:
    """Look that a client gets an answer through the router, made from KV that was pulled."""
    running = cluster.now
    before = pages.total(running.metrics(D), "vllm:nixl_xfer_time_seconds_count") or 0.0
    body = {"model": model.NAME, "prompt": "after a cold start " * 20, "max_tokens": 8, "temperature": 0}
    assert pages.post(f"{running.router_url}/v1/completions", body)["usage"]["completion_tokens"] == 8
    until(
        "the pull is counted",
        lambda: (pages.total(running.metrics(D), "vllm:nixl_xfer_time_seconds_count") or 0.0) > before,
    )


@pytest.fixture(scope="module")
def runbook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped cold start."""
    return _written(tmp_path_factory, variant("cold-start", "cold-start-again"))


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped cold start, which waits less for a store that cannot come."""
    content = variant("cold-start", "cold-start-impatient")
    content["steps"] = [{**s, "timeout_s": 10} if s["id"] == "store" else s for s in content["steps"]]
    return _written(tmp_path_factory, content)


def _written(tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any]) -> Path:
    file = tmp_path_factory.mktemp("runbooks") / f"{content['id']}.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def start(cluster: Cluster, runbook: Path) -> dict[str, Any]:
    run = cluster.runbook("apply", str(cluster.plan(runbook)))
    print(run["state"], run["why"], order(cluster.now))
    assert run["state"] == "done"
    return run


def test_a_cluster_of_which_nothing_runs_is_started_in_order(cluster: Cluster, runbook: Path) -> None:
    power_cut(cluster.now)
    run = start(cluster, runbook)
    assert run["why"] == ""
    assert order(cluster.now) == [S, P, D, R]
    assert all(state == "verified" for state in steps(run).values()), steps(run)
    assert MOONCAKE in " ".join(cluster.now.state.processes[P].command)
    answered(cluster)


def test_without_its_store_it_is_started_all_the_same_and_says_so(cluster: Cluster, impatient: Path) -> None:
    power_cut(cluster.now)
    with taken(cluster.now):
        run = start(cluster, impatient)
    assert "without store:store-0" in run["why"]
    assert order(cluster.now) == [P, D, R]
    found = steps(run)
    assert found.pop(f"store:{S}") == "failed"
    assert set(found.values()) == {"verified"}, found
    assert MOONCAKE not in " ".join(cluster.now.state.processes[P].command)
    answered(cluster)


@pytest.mark.soak
def test_a_store_that_must_be_there_ends_the_start_before_any_engine(cluster: Cluster, impatient: Path) -> None:
    power_cut(cluster.now)
    with taken(cluster.now):
        file = cluster.plan(impatient, "store_fails=stop")
        run = cluster.runbook("apply", str(file), code=4)
    assert run["state"] == "rolled-back"
    assert order(cluster.now) == []


@pytest.mark.soak
def test_the_next_cold_start_uses_the_store_again(cluster: Cluster, runbook: Path) -> None:
    assert start(cluster, runbook)["why"] == ""
    assert order(cluster.now) == [S, P, D, R]
    assert MOONCAKE in " ".join(cluster.now.state.processes[D].command)
    answered(cluster)
