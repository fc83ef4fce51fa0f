"""Kill a run with SIGKILL at every boundary, and at random ones again and again, until it ends; print what came of it.

    python -m tests.runbook.trials FOLDER [--random N] [--seed S]

Each attempt is a forked child with its own connection; the world is a double in a file. Prints one JSON object a trial.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pdops.clock import VirtualClock
from pdops.runbook import audit
from pdops.runbook.execute import Executor
from pdops.runbook.gates import Outcome
from pdops.runbook.journal import Journal
from tests.runbook.double_backend import DoubleBackend
from tests.runbook.engine_kit import RESTART, SCALE_OUT, T0, SetJudge, plan

FAIL = (Outcome.FAIL, "told so")
DEGRADED = tuple(replace(s, if_fails="degrade") if s.action == "pair.canary" else s for s in SCALE_OUT)


@dataclass(frozen=True)
class Scenario:
    """What is to happen: which answers fail, which actions, how it ends and with which effects."""

    name: str
    ends: str
    effects: tuple[str, ...]
    steps: tuple = SCALE_OUT
    fails: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()


SCENARIOS = (
    Scenario("done", "done", ("pool.scale-out", "router.add")),
    Scenario("without-canary", "done", ("pool.scale-out", "router.add"), steps=DEGRADED, fails=("pair.canary",)),
    Scenario("restart", "done", ("worker.cordon", "worker.restart", "worker.uncordon"), steps=RESTART),
    Scenario("canary-fails", "rolled-back", ("pool.scale-out", "pool.scale-in"), fails=("pair.canary",)),
    Scenario(
        "symptom-stays",
        "rolled-back",
        ("pool.scale-out", "router.add", "router.remove", "pool.scale-in"),
        answers=("success",),
    ),
    Scenario(
        "not-taken-back", "failed", ("pool.scale-out", "router.add"), answers=("success",), fails=("router.remove",)
    ),
)


def attempt(folder: Path, scenario: Scenario, reached: Callable[[str], None]) -> None:
    """Do what one process does: ask for the plan three times, carry its run out."""
    clock = VirtualClock(T0)
    backend, judge = DoubleBackend(folder / "world.json"), SetJudge()
    backend.fails = set(scenario.fails)
    judge.answers = dict.fromkeys(scenario.answers, FAIL)
    # What a kill leaves is in the page cache; only a power cut asks for more.
    with Journal(folder / "journal.db", clock, synchronous="OFF") as journal:
        x = Executor(journal, backend, judge, clock=clock, sleep=clock.advance, actor="ada", reached=reached)
        wanted = plan(scenario.steps)
        for _ in range(3):
            run = x.open(wanted)
        x.drive(run.id)


def killed(work: Callable[[], None], after_s: float | None = None) -> bool:
    """Do it in a child; return whether the child was killed."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001  whatever it is, the parent has to know
            print(json.dumps({"error": repr(error)}), flush=True)
            os._exit(1)
    if after_s is not None:
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit("a child failed")
    return os.WIFSIGNALED(status)


def die_at(number: int) -> Callable[[str], None]:
    """Return a listener that kills its process at the n-th boundary (from 0)."""
    left = number

    def reached(_point: str) -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    return reached


def judge(folder: Path, scenario: Scenario, kills: int, how: str) -> dict:
    """Return what came of a trial, with everything that is wrong with it."""
    with Journal(folder / "journal.db", VirtualClock(T0), synchronous="OFF") as journal:
        (run,) = journal.runs()
        wrong = list(audit.verify(journal).problems)
        if run.state != scenario.ends:
            wrong.append(f"it is {run.state}: {run.why}")
        done = Counter(action for _, action, _, _ in DoubleBackend(folder / "world.json").effects)
        if done != Counter(scenario.effects):
            wrong.append(f"effects {dict(done)}")
        if journal.locks():
            wrong.append(f"locks {journal.locks()}")
        return {"scenario": scenario.name, "how": how, "kills": kills, "ends": run.state, "wrong": wrong}


def boundaries(folder: Path, scenario: Scenario) -> int:
    """Return how many boundaries a run without a kill reaches."""
    points: list[str] = []
    folder.mkdir()
    attempt(folder, scenario, points.append)
    return len(points)


def main() -> None:
    """Run the trials."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--random", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    dice, number = random.Random(given.seed), 0

    def trial(scenario: Scenario, how: str, once: Callable[[Path], bool]) -> None:
        nonlocal number
        number += 1
        folder = given.folder / f"trial-{number}"
        folder.mkdir()
        kills = 0
        while once(folder):
            kills += 1
        print(json.dumps(judge(folder, scenario, kills, how)), flush=True)

    for scenario in SCENARIOS:
        for at in range(boundaries(given.folder / f"whole-{scenario.name}", scenario)):
            left = [at]

            def once(folder: Path, s: Scenario = scenario, left: list[int] = left) -> bool:
                listener = die_at(left.pop() if left else -1)
                return killed(lambda: attempt(folder, s, listener))

            trial(scenario, f"boundary {at}", once)
    for _ in range(given.random):
        chosen = dice.choice(SCENARIOS)

        def anywhere(folder: Path, s: Scenario = chosen) -> bool:
            listener = die_at(dice.choice([0, 1, 2, 3, 5, 8, -1]))
            return killed(lambda: attempt(folder, s, listener))

        trial(chosen, "random", anywhere)
    for _ in range(given.random):
        scenario, waits = dice.choice(SCENARIOS), [dice.uniform(0.0, 0.06) for _ in range(3)]

        def any_moment(folder: Path, s: Scenario = scenario, waits: list[float] = waits) -> bool:
            after_s = waits.pop() if waits else None
            return killed(lambda: attempt(folder, s, lambda _: None), after_s)

        trial(scenario, "any moment", any_moment)


if __name__ == "__main__":
    main()
