"""Two prefill and two decode engines: all four pairs hand KV over, and each engine's start is told by its own spans."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pdops.clock import WallClock
from pdops.reference import startup
from pdops.reference.running import Running
from tests.real.conftest import pdops
from tests.reference.otlp_double import CollectorDouble, collecting

# After the tests on the shared pair: four more engines load on the same cores.
pytestmark = [pytest.mark.real, pytest.mark.kills, pytest.mark.timeout(2400)]
CLOCK = WallClock()
ENGINES = ("prefill-0", "prefill-1", "decode-0", "decode-1")
PAIRS = {f"{p}>{d}" for p in ENGINES[:2] for d in ENGINES[2:]}
SPANS_S = 60.0
"""Engines export in batches, five seconds apart."""


@dataclass(frozen=True, slots=True)
class Four:
    """The deployment, and what its engines exported."""

    running: Running
    collector: CollectorDouble


@pytest.fixture(scope="module")
def four(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Four]:
    assert engine_python.exists()
    place = tmp_path_factory.mktemp("four")
    with collecting(place / "traces.jsonl") as collector:
        size = ("--prefill", "2", "--decode", "2", "--order", "any")
        done = pdops("up", "--state-dir", str(place), *size, "--otlp", collector.url, timeout_s=2000)
        assert done.returncode == 0, done.stderr
        try:
            yield Four(Running.open(place), collector)
        finally:
            done = pdops("down", "--state-dir", str(place), "--deadline", "10")
            assert done.returncode == 0, done.stderr


def test_every_pair_is_right(four: Four) -> None:
    done = pdops("canary", "--state-dir", str(four.running.state_dir), "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"]) == (0, "ok"), done.stdout
    assert {result["pair"] for result in report["pairs"]} == PAIRS
    assert {result["verdict"] for result in (*report["pairs"], *report["routers"])} == {"ok"}
    assert len(report["routers"]) == 1


def test_the_start_of_every_engine_is_told_by_its_spans(four: Four) -> None:
    end = CLOCK.monotonic() + SPANS_S
    while {s.worker for s in startup.read(four.collector.file).spans if s.name == "Load model"} < set(ENGINES):
        assert CLOCK.monotonic() < end, four.collector.file.read_text()[-2000:]
        time.sleep(0.5)
    assert set(four.collector.paths) == {"/v1/traces"}
    place = str(four.running.state_dir)
    done = pdops("status", "--state-dir", place, "--spans", str(four.collector.file), "--json")
    assert done.returncode == 0, done.stdout
    told = {worker["id"]: worker["startup"] for worker in json.loads(done.stdout)["workers"]}
    for engine in ENGINES:
        parts = {part["span"]: part["seconds"] for part in told[engine]}
        assert parts["Load model"] > 0, parts
        print(f"{engine}: {parts}")
    assert told["router-0"] is None, "a router loads no model"
    done = pdops("status", "--state-dir", place, "--spans", str(four.collector.file))
    assert done.stdout.count("Load model") == len(ENGINES)
