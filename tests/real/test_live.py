"""The command line on the real pair, under load: record, diagnose, top."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from pdops.diagnose.encode import schema
from pdops.reference.running import Running
from pdops.sources.recording import open_recording
from tests.real.conftest import DECODE, PREFILL, ROOT, ROUTER, pdops

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]


def targets(running: Running) -> list[str]:
    found = {"prefill": running.url(PREFILL), "decode": running.url(DECODE), "router": running.router_url}
    return [word for role, url in found.items() for word in ("--target", f"{role}={url}")]


@pytest.fixture(scope="module")
def judging(running: Running, load: None) -> Iterator[subprocess.Popen[str]]:
    """A minute's diagnosis, which goes on while the other commands look at the same pair."""
    command = [sys.executable, "-m", "pdops", "diagnose", *targets(running), "--for", "60", "--json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_record_keeps_every_worker(running: Running, load: None, tmp_path: Path) -> None:
    path = tmp_path / "live.pdrec"
    done = pdops("record", *targets(running), "-o", str(path), "--for", "15")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    record = open_recording(path)
    frames = list(record.iter_frames())
    assert record.warnings == ()
    answered = {s.worker for f in frames for s in f.scrapes if s.values is not None}
    assert {PREFILL, DECODE, ROUTER} == answered
    assert any(not s.full for f in frames for s in f.scrapes), "the fast loop was never used"


def test_top_prints_the_pools(running: Running, judging: subprocess.Popen[str]) -> None:
    done = pdops("top", "--once", *targets(running), "--for", "10")
    assert done.returncode == 0, done.stderr
    assert "PREFILL 1/1 up" in done.stdout
    assert "DECODE 1/1 up" in done.stdout


def test_a_sound_pair_is_healthy_and_its_ttft_is_split(judging: subprocess.Popen[str]) -> None:
    said, _ = judging.communicate(timeout=180)
    report = json.loads(said)
    jsonschema.validate(report, schema())
    assert (report["verdict"], judging.returncode) == ("healthy", 0), said
    stages = {s["stage"]: s["seconds"] for s in report["ttft"]}
    assert all(seconds is not None for seconds in stages.values()), report["ttft"]
    assert abs(sum(s["share"] for s in report["ttft"]) - 1) < 1e-6
