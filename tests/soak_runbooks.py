"""Kill runs of runbooks with SIGKILL some hundreds of times, at every boundary and at any moment, and say what came of it.

    python tests/soak_runbooks.py [--least 500] [--limit 3600]

Runs of a double of a backend until so many trials were killed at least once; then a scale-out on the local backend, with
doubles for engines and the real router, at each of its boundaries. The status is 0 when every run ended as it would have
without a kill, with each effect once, and an audit that holds; 1 when one did not or the time was over first.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ROUND = 120
"""Random trials of each of two kinds in a round, which also has every boundary of every scenario once."""
LOCAL = "tests/reference/test_operate.py::test_a_scale_out_killed_at_any_boundary_ends_with_one_engine_more"


def main() -> int:
    """Run them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--least", type=int, default=500, help="trials that must have been killed")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds that all of it may take")
    given = parser.parse_args()
    begin = time.monotonic()
    trials: list[dict[str, Any]] = []
    seed, late = 0, False
    while _killed(trials) < given.least and not late:
        seed += 1
        left = given.limit - (time.monotonic() - begin)
        found, late = _round(seed, left)
        trials += found
        print(f"round {seed}: {len(found)} trials, {_killed(trials)} killed so far", flush=True)
    _tell(trials, time.monotonic() - begin)
    local: int | None = None
    if not late:
        env = {**os.environ, "PDOPS_REQUIRE_REAL": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-s", "--timeout", "1200", LOCAL]
        left = given.limit - (time.monotonic() - begin)
        local, late = _bounded(command, env, left)
    wrong = any(t["wrong"] for t in trials) or _killed(trials) < given.least
    said = {None: "not run, the time was over", 0: "every boundary passed"}.get(local, "FAILED")
    print(f"local backend, engines doubled: {said}")
    print(f"{time.monotonic() - begin:.0f} s in all{', cut off by the limit' if late else ''}")
    return int(wrong or local != 0)


def _killed(trials: list[dict[str, Any]]) -> int:
    return sum(t["kills"] > 0 for t in trials)


def _round(seed: int, limit_s: float) -> tuple[list[dict[str, Any]], bool]:
    """Return the trials of one seed, and whether time was over before they ended."""
    with tempfile.TemporaryDirectory(prefix="pdops-trials-") as folder, tempfile.TemporaryFile("w+") as out:
        command = [sys.executable, "-m", "tests.runbook.trials", folder, "--random", str(ROUND), "--seed", str(seed)]
        with subprocess.Popen(command, cwd=ROOT, stdout=out) as child:
            late = False
            try:
                child.wait(max(1.0, limit_s))
            except subprocess.TimeoutExpired:
                late = True
                child.kill()
        out.seek(0)
        found = [json.loads(line) for line in out if line.endswith("\n")]
    if not late and child.returncode:
        raise SystemExit(f"the trials ended with {child.returncode}: {found[-1:]}")
    return found, late


def _bounded(command: list[str], env: dict[str, str], limit_s: float) -> tuple[int, bool]:
    try:
        return subprocess.run(command, cwd=ROOT, env=env, check=False, timeout=max(1.0, limit_s)).returncode, False
    except subprocess.TimeoutExpired:
        return 1, True


def _tell(trials: list[dict[str, Any]], seconds: float) -> None:
    print(
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.system()} {platform.release()}"
    )
    print(f"{len(trials)} trials in {seconds:.0f} s, {_killed(trials)} killed at least once, "
          f"{sum(t['kills'] for t in trials)} kills, {sum(bool(t['wrong']) for t in trials)} wrong")  # fmt: skip
    for scenario in dict.fromkeys(t["scenario"] for t in trials):
        mine = [t for t in trials if t["scenario"] == scenario]
        ways = Counter(t["how"].split(" ")[0] for t in mine)
        ends = Counter(t["ends"] for t in mine)
        print(f"  {scenario:<15} {len(mine):>4} trials {dict(ways)}, ended {dict(ends)}")
    for trial in trials:
        if trial["wrong"]:
            print(json.dumps(trial))


if __name__ == "__main__":
    sys.exit(main())
