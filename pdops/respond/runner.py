"""Carry out what was approved, go on with what was interrupted, take back what was aborted."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pdops.actuate.backend import Backend
from pdops.clock import Clock
from pdops.errors import PdopsError, RefusedError
from pdops.respond.intake import ACTOR, RESUME
from pdops.respond.watchdog import Watchdog
from pdops.runbook.execute import Executor
from pdops.runbook.journal import Journal, Run
from pdops.runbook.killswitch import KillSwitch
from pdops.runbook.model import Mode
from pdops.runbook.plan import Asked
from pdops.runbook.signals import Look, Signals
from pdops.runbook.states import RunState

RETRY_S, LONGEST_S = 15.0, 300.0
"""Between two attempts at a run that could not go on, targets unreadable or another process having it: twice as long each time,
as every attempt is written down."""
_WAITS = frozenset({RunState.PLANNED, RunState.HELD})


class Runner:
    """Drives the runs that alerts asked for, one at a time.

    Args:
        journal: where they are.
        backend: what changes the cluster.
        look: returns what is seen now with its diagnosis.
        clock: where time comes from.
        sleep: waits seconds; what it raises ends the process's work and leaves the run to be resumed.
        watchdog: what was approved by itself does not begin while it is silent.
        reached: told at every boundary between two writes or effects.
    """

    def __init__(
        self,
        journal: Journal,
        backend: Backend,
        look: Look,
        *,
        cluster: str,
        clock: Clock,
        sleep: Callable[[float], None],
        watchdog: Watchdog,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._journal, self._backend, self._cluster, self._clock = journal, backend, cluster, clock
        self._watchdog = watchdog
        self._executor = Executor(
            journal, backend, Signals(look), clock=clock, sleep=sleep, actor=ACTOR, reached=reached
        )
        self._switch = KillSwitch(journal)
        self._lock = threading.Lock()
        self._asked = {
            r.id for r in journal.runs(open_only=True) if r.state is RunState.HELD and _let_go_on(journal, r)
        }
        self._failed: set[str] = set()
        """Runs that were let go on and are held still, as what drove them failed."""
        self._tried: dict[str, tuple[float, int]] = {}
        self.problems: dict[str, str] = {}

    def resume(self, run_id: str) -> None:
        """Go on with a held run at the next step, as a person asked."""
        with self._lock:
            self._asked.add(run_id)

    def step(self) -> None:
        """Drive the first run that may go on, to its end or to a hold."""
        wanted = [r for r in self._journal.runs(open_only=True) if self._wanted(r)]
        here = self._backend.name if wanted else ""
        runs = [r for r in wanted if r.plan["backend"] == here]
        there = {r.id for r in runs}
        self._tried = {run: tried for run, tried in self._tried.items() if run in there}
        self._failed &= there
        self.problems = {run: why for run, why in self.problems.items() if run in there}
        for run in wanted:
            if run.id not in there and run.state is not RunState.PLANNED:
                self.problems[run.id] = f"it is {run.state}, and for {run.plan['backend']}; this is {here}"
        with self._lock:
            asked = self._asked & there
            self._asked = set(asked)
        for run in runs:
            if run.id not in asked and not self._due(run):
                continue
            with self._lock:
                self._asked.discard(run.id)
            times = 1 if run.id in asked else self._tried.get(run.id, (0.0, 0))[1] + 1
            self._tried[run.id] = self._clock.monotonic(), times
            if run.state is RunState.HELD:
                self._failed.add(run.id)
            try:
                self._executor.drive(run.id)
                self._failed.discard(run.id)
                self.problems.pop(run.id, None)
            except RefusedError as error:
                self.problems[run.id] = str(error)
                continue
            except PdopsError as error:
                self.problems[run.id] = str(error)
            return

    def _wanted(self, run: Run) -> bool:
        return run.cluster == self._cluster and run.plan["asked"] == Asked.ALERT

    def _due(self, run: Run) -> bool:
        again = run.id in self._failed and _let_go_on(self._journal, run)
        if run.state in _WAITS and not again and not _to_be_taken_back(run):
            return False
        if run.state is RunState.APPROVED:
            if self._switch.why(self._cluster) is not None:
                return False
            by_itself = run.plan["mode"] == Mode.AUTO and run.approver == ACTOR
            if by_itself and not self._watchdog.pulse().alive:
                return False
        at_s, times = self._tried.get(run.id, (0.0, 0))
        return not times or self._clock.monotonic() - at_s >= min(LONGEST_S, RETRY_S * 2.0 ** (times - 1))


def _to_be_taken_back(run: Run) -> bool:
    """Whether a held run was aborted and nobody has begun to take it back: who asked was answered, and asks no more."""
    return run.state is RunState.HELD and run.abort and run.before_hold is not RunState.ROLLING_BACK


def _let_go_on(journal: Journal, run: Run) -> bool:
    """Whether a person let a held run go on and nothing came of it, as the process ended in between."""
    asked = False
    for event in journal.events(run.id):
        asked = (event.kind == "noted" and event.body.get("asked") == RESUME) or (asked and event.kind != "state")
    return asked
