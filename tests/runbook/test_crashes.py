"""A run that is killed at any boundary ends as it would have, with each effect once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_a_run_killed_at_any_boundary_ends_as_it_would_have_with_each_effect_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.runbook.trials", str(tmp_path), "--random", "15"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    trials = [json.loads(line) for line in done.stdout.splitlines()]
    assert [t for t in trials if t["wrong"]] == []
    assert sum(t["kills"] > 0 for t in trials) >= 60
    assert all(t["kills"] == 1 for t in trials if t["how"].startswith("boundary"))
    assert {t["ends"] for t in trials} == {"done", "rolled-back", "failed"}
