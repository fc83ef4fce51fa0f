"""Counts of runs, kept by reading events once. Pure: the same events give the same counts, so they outlive any process."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pdops.runbook.journal import Event
from pdops.runbook.states import ENDED, RunState, StepState
from pdops.runbook.trail import action_of

BOUNDS_S = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0)
"""Upper ends of the buckets of run times, in seconds: from a cordon to a scale-out of an engine that loads for minutes."""
MOST_NAMES = 200
"""Runbooks and actions that are counted by name; files of users name more of them at will, and labels stay bounded."""
OTHER = "other"


@dataclass(slots=True)
class _Run:
    cluster: str
    runbook: str
    state: RunState
    steps: Sequence[dict[str, Any]]
    started_s: float | None = None


@dataclass(slots=True)
class Times:
    """How long runs took: counts by bucket of `BOUNDS_S` and one above, and the sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, took_s: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS_S, took_s)] += 1
        self.sum_s += took_s


class Tally:
    """What the events so far come to."""

    def __init__(self) -> None:
        self.runs: Counter[tuple[str, str, str]] = Counter()
        """By cluster, runbook and outcome."""
        self.steps: Counter[tuple[str, str, str, str]] = Counter()
        """By cluster, runbook, action and outcome: verified, skipped, failed, taken-back or not-taken-back."""
        self.times: dict[tuple[str, str], Times] = {}
        """By cluster and runbook, from the first lock to the end; what never began is not in it."""
        self.frozen: set[str] = set()
        """Clusters that are frozen in the journal; `*` is all of them."""
        self.seq = 0
        self.hash = ""
        self._runs: dict[str, _Run] = {}
        self._names: set[str] = set()

    @property
    def clusters(self) -> tuple[str, ...]:
        """Clusters that runs were about."""
        return tuple(sorted({cluster for cluster, *_ in self.runs} | {r.cluster for r in self._runs.values()}))

    def now(self) -> Counter[tuple[str, str]]:
        """Return how many runs have not ended, by cluster and state; 0 for a state that none is in."""
        found = Counter({(c, state.value): 0 for c in self.clusters for state in RunState if state not in ENDED})
        for run in self._runs.values():
            found[run.cluster, run.state.value] += 1
        return found

    def take(self, event: Event) -> None:
        """Count one event, which comes after those before."""
        self.seq, self.hash = event.seq, event.hash
        body = event.body
        if event.kind == "froze":
            self.frozen.add(self._name(str(body["scope"])))
        elif event.kind == "thawed":
            self.frozen.discard(self._name(str(body["scope"])))
        elif event.kind == "opened":
            plan = body["plan"]
            names = (self._name(str(plan["cluster"])), self._name(str(plan["runbook"])))
            self._runs[event.run] = _Run(*names, RunState.PLANNED, plan["steps"])
        run = self._runs.get(event.run)
        if run is None:
            return
        if event.kind == "step":
            self._step(body, run)
        elif event.kind == "approved":
            run.state = RunState.APPROVED
        elif event.kind == "started":
            run.state = RunState.ACTING
            run.started_s = event.at_s if run.started_s is None else run.started_s
        elif event.kind == "state":
            run.state = RunState(body["to"])
            if run.state in ENDED:
                self._ended(event, run)

    def _ended(self, event: Event, run: _Run) -> None:
        self.runs[run.cluster, run.runbook, run.state.value] += 1
        if run.started_s is not None:
            times = self.times.setdefault((run.cluster, run.runbook), Times())
            times.add(max(0.0, event.at_s - run.started_s))
        del self._runs[event.run]

    def _step(self, body: Any, run: _Run) -> None:
        undone = body["phase"] == "undo"
        if body["to"] == StepState.FAILED:
            outcome = "not-taken-back" if undone else "failed"
        elif body["to"] == StepState.VERIFIED:
            outcome = "taken-back" if undone else "skipped" if body.get("detail") == "not needed" else "verified"
        else:
            return
        self.steps[run.cluster, run.runbook, self._name(action_of(body, run.steps)), outcome] += 1

    def _name(self, name: str) -> str:
        if name not in self._names and len(self._names) >= MOST_NAMES:
            return OTHER
        self._names.add(name)
        return name
