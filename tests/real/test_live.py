"""The command line on the real pair, under load: record, diagnose, top."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from pdops.diagnose.encode import schema
from pdops.reference.running import Running
from pdops.sources.recording import open_recording
from tests.real.conftest import DECODE, PREFILL, ROUTER, pdops

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]


def targets(running: Running) -> list[str]:
    found = {"prefill": running.url(PREFILL), "decode": running.url(DECODE), "router": running.router_url}
    return [word for role, url in found.items() for word in ("--target", f"{role}={url}")]


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


def test_a_sound_pair_is_healthy_and_its_ttft_is_split(running: Running, load: None) -> None:
    done = pdops("diagnose", *targets(running), "--for", "60", "--json")
    report = json.loads(done.stdout)
    jsonschema.validate(report, schema())
    assert (report["verdict"], done.returncode) == ("healthy", 0), done.stdout
    stages = {s["stage"]: s["seconds"] for s in report["ttft"]}
    assert all(seconds is not None for seconds in stages.values()), report["ttft"]
    assert abs(sum(s["share"] for s in report["ttft"]) - 1) < 1e-6


def test_top_prints_the_pools(running: Running, load: None) -> None:
    done = pdops("top", "--once", *targets(running), "--for", "10")
    assert done.returncode == 0, done.stderr
    assert "PREFILL 1/1 up" in done.stdout
    assert "DECODE 1/1 up" in done.stdout
