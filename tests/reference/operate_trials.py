"""Kill a scale-out of a deployment of doubles with SIGKILL at every boundary, go on, and print what came of it.

    python -m tests.reference.operate_trials STATE_DIR JOURNAL_FOLDER [EVERY]

With EVERY only each so many-th boundary is tried.

The deployment and its router are up already; the engines are doubles, and so are the answers of the canary.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pdops.actuate import processes
from pdops.actuate.backend import Fence
from pdops.actuate.local import LocalBackend
from pdops.actuate.router_admin import PdopsRouter
from pdops.clock import WallClock
from pdops.model.frame import Probe, ProbeKind
from pdops.reference.operate import Operated
from pdops.reference.running import Running
from pdops.reference.state import Home
from pdops.runbook import audit
from pdops.runbook.encode import plan_from_json, plan_to_json
from pdops.runbook.execute import Executor
from pdops.runbook.journal import Journal
from tests.runbook.engine_kit import SetJudge, plan, step
from tests.runbook.trials import die_at, killed

WORKER = "prefill-1"
STEPS = (
    step(
        "start", "pool.scale-out", "pool/prefill/replicas", 1, 2, {"role": "prefill", "worker": WORKER, "replicas": 2}
    ),
    step("canary", "pair.canary", None, None, None, {"worker": WORKER}),
    step("route", "router.add", f"worker/{WORKER}/routed", False, True, {"worker": WORKER}),
)


class DoubleCanary(Operated):
    """Doubles move no KV: their canary is answered here."""

    def canary(self, worker: str) -> tuple[Probe, ...]:
        return (Probe(t_s=0.0, kind=ProbeKind.CANARY, ok=True, pair=f"{worker}>decode-0"),)


def backend(place: Home) -> LocalBackend:
    """Return what a new process has."""
    running = Running.open(place)
    router = PdopsRouter(running.router_url, running.admin_token_file)
    return LocalBackend(DoubleCanary(place), router, WallClock(), lambda s: time.sleep(min(s, 0.02)))


def attempt(place: Home, folder: Path, reached: Callable[[str], None]) -> None:
    """Do what one process does."""
    clock, file = WallClock(), folder / "plan.json"
    if not file.exists():
        made = plan(STEPS, state=backend(place).observe(), now_s=clock.now(), observe_s=0.0)
        file.write_text(plan_to_json(made))
    with Journal(folder / "journal.db", clock, synchronous="OFF") as journal:
        x = Executor(
            journal,
            backend(place),
            SetJudge(),
            clock=clock,
            sleep=lambda s: time.sleep(min(s, 0.1)),
            actor="ada",
            reached=reached,
        )
        run = x.open(plan_from_json(file.read_text(), path=str(file)))
        x.drive(run.id)


def judged(place: Home, folder: Path, at: int) -> dict:
    """Return what came of a trial, and put everything back."""
    running = Running.open(place)
    words = Counter(role for pid in processes.with_mark(place.mark()) for role in (_serves(pid),) if role is not None)
    routed = list(backend(place)._router.workers())
    with Journal(folder / "journal.db", WallClock(), synchronous="OFF") as journal:
        (run,) = journal.runs()
        wrong = list(audit.verify(journal).problems)
        if run.state != "done":
            wrong.append(f"it is {run.state}: {run.why}")
        fence = run.fence
    if words != Counter({e.port: 1 for e in running.spec.engines}) or len(running.spec.engines) != 3:
        wrong.append(f"engines {dict(words)} for {[e.id for e in running.spec.engines]}")
    if sorted(routed) != ["decode-0", "prefill-0", WORKER]:
        wrong.append(f"routed {routed}")
    # Every journal counts its fences from one, and a deployment remembers the highest it has seen.
    (place.path / "fence").unlink()
    backend(place).apply("pool.scale-in", {"role": "prefill", "worker": WORKER, "replicas": 1}, Fence("after", fence))
    (place.path / "fence").unlink()
    return {"boundary": at, "ends": run.state, "wrong": wrong}


def _serves(pid: int) -> int | None:
    """Return the port of an engine's leading process."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    if "pdops.router" in words:
        return None
    return next((int(w.partition("=")[2]) for w in words if w.startswith("--port=")), None)


def main() -> None:
    """Run the trials."""
    place, folder = Home(Path(sys.argv[1])), Path(sys.argv[2])
    points: list[str] = []
    whole = folder / "whole"
    whole.mkdir(parents=True)
    attempt(place, whole, points.append)
    print(json.dumps({**judged(place, whole, -1), "points": points}), flush=True)
    for at in range(0, len(points), int(sys.argv[3]) if len(sys.argv) > 3 else 1):
        here = folder / f"trial-{at}"
        here.mkdir()
        listener = die_at(at)
        assert killed(lambda here=here, listener=listener: attempt(place, here, listener))
        assert not killed(lambda here=here: attempt(place, here, lambda _: None))
        print(json.dumps(judged(place, here, at)), flush=True)


if __name__ == "__main__":
    main()
