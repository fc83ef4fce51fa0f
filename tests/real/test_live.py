"""The command line on the real pair, under load: record, diagnose, top; then with decode killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from pdops.diagnose.encode import schema
from pdops.sources.recording import open_recording
from tests.real.conftest import ROOT
from tests.real.rig.pair import Pair
from tests.real.rig.procs import Process

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

Served = tuple[Process, str]


@pytest.fixture(scope="module")
def load(proxy: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Light load for as long as these tests may take; it ends by itself."""
    command = [sys.executable, "-m", "tests.real.rig.load", proxy[1]]
    command += ["--rate=0.8", "--duration=400", "--prompt=300", "--tokens=16"]
    process = Process("load", command, log=tmp_path_factory.mktemp("load") / "load.log", cwd=ROOT)
    yield process
    process.stop()


def _pdops(*args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "pdops", *args]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)


def _targets(pair: Pair, proxy: Served) -> list[str]:
    found = {"prefill": pair.prefill.url, "decode": pair.decode.url, "router": proxy[1]}
    return [word for role, url in found.items() for word in ("--target", f"{role}={url}")]


def test_record_keeps_every_worker(pair: Pair, proxy: Served, load: Process, tmp_path: Path) -> None:
    path = tmp_path / "live.pdrec"
    done = _pdops("record", *_targets(pair, proxy), "-o", str(path), "--for", "15")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    record = open_recording(path)
    frames = list(record.iter_frames())
    assert record.warnings == ()
    answered = {s.worker for f in frames for s in f.scrapes if s.values is not None}
    assert {"prefill-0", "decode-0", "router-0"} == answered
    assert any(not s.full for f in frames for s in f.scrapes), "the fast loop was never used"


def test_a_sound_pair_is_healthy_and_its_ttft_is_split(pair: Pair, proxy: Served, load: Process) -> None:
    done = _pdops("diagnose", *_targets(pair, proxy), "--for", "60", "--json")
    report = json.loads(done.stdout)
    jsonschema.validate(report, schema())
    assert (report["verdict"], done.returncode) == ("healthy", 0), done.stdout
    stages = {s["stage"]: s["seconds"] for s in report["ttft"]}
    assert all(seconds is not None for seconds in stages.values()), report["ttft"]
    assert abs(sum(s["share"] for s in report["ttft"]) - 1) < 1e-6


def test_top_prints_the_pools(pair: Pair, proxy: Served, load: Process) -> None:
    done = _pdops("top", "--once", *_targets(pair, proxy), "--for", "10")
    assert done.returncode == 0, done.stderr
    assert "PREFILL 1/1 up" in done.stdout
    assert "DECODE 1/1 up" in done.stdout


@pytest.mark.kills
def test_a_killed_decode_worker_is_named(pair: Pair, proxy: Served, load: Process) -> None:
    targets = _targets(pair, proxy)
    pair.decode.kill()
    done = _pdops("diagnose", *targets, "--for", "20", "--json")
    report = json.loads(done.stdout)
    jsonschema.validate(report, schema())
    assert (report["verdict"], done.returncode) == ("fault", 1), done.stdout
    top = report["hypotheses"][0]
    assert (top["cause"], top["scopes"]) == ("decode-down", [{"worker": "decode-0"}])
