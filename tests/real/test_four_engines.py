"""Two prefill and two decode engines: all four pairs hand KV over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.conftest import pdops

# The canary of a pair and the pair that a scale-out adds are tried by every run; four more engines load for a minute.
pytestmark = [pytest.mark.real, pytest.mark.kills, pytest.mark.soak, pytest.mark.timeout(2400)]
PAIRS = {f"prefill-{p}>decode-{d}" for p in range(2) for d in range(2)}


@pytest.fixture(scope="module")
def place(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    assert engine_python.exists()
    where = tmp_path_factory.mktemp("four")
    size = ("--prefill", "2", "--decode", "2", "--order", "any")
    done = pdops("up", "--state-dir", str(where), *size, timeout_s=2000)
    assert done.returncode == 0, done.stderr
    try:
        yield where
    finally:
        done = pdops("down", "--state-dir", str(where), "--deadline", "10")
        assert done.returncode == 0, done.stderr


def test_every_pair_is_right(place: Path) -> None:
    done = pdops("canary", "--state-dir", str(place), "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"]) == (0, "ok"), done.stdout
    assert {result["pair"] for result in report["pairs"]} == PAIRS
    assert {result["verdict"] for result in (*report["pairs"], *report["routers"])} == {"ok"}
    assert len(report["routers"]) == 1
