"""From an episode to a plan: the alert names runbooks, the diagnosis must agree, and guards decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pdops.actuate.backend import Backend, State
from pdops.clock import Clock
from pdops.errors import JournalError, PdopsError, RefusedError, UnreachableError
from pdops.model.report import Report
from pdops.model.view import View
from pdops.respond.advice import PLANS, turned_down, write_plan
from pdops.respond.candidates import candidates, elsewhere
from pdops.respond.episodes import FINAL, Decision, Episode, Episodes, Made, Repeat, note
from pdops.respond.folding import Folding
from pdops.respond.intake import ACTOR
from pdops.respond.watchdog import Heard, Watchdog
from pdops.runbook import aborting, allowance, approval, locks
from pdops.runbook.execute import Executor
from pdops.runbook.gates import Outcome
from pdops.runbook.journal import Journal, Run
from pdops.runbook.killswitch import KillSwitch
from pdops.runbook.make import AGREEMENT, BackendState, make_plan, without_backend
from pdops.runbook.model import Mode, Risk, Runbook
from pdops.runbook.plan import Asked, Plan
from pdops.runbook.plan import Decision as Comes
from pdops.runbook.signals import Look, Signals
from pdops.runbook.states import RunState

RETRY_S = 15.0
"""Between two looks at an episode that nothing could be made of yet: what is not known now may be in a few scrapes."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one pass goes by."""

    view: View
    report: Report
    state: State
    backend: BackendState


class Planner:
    """Makes something of every episode that fires; carries nothing out.

    Args:
        journal: where episodes and runs are.
        backend: what could be changed; None where plans are for reading.
        look: returns what is seen now with its diagnosis.
        runbooks: those that may be started, by id, each in its mode.
        clock: where time comes from.
        watchdog: nothing starts by itself while it is silent.
        suppressed: returns the episodes that are silenced or inhibited.
        acts: told when a run may begin.
    """

    def __init__(
        self,
        journal: Journal,
        backend: Backend | None,
        look: Look,
        runbooks: Mapping[str, Runbook],
        *,
        cluster: str,
        clock: Clock,
        watchdog: Watchdog,
        suppressed: Callable[[], frozenset[str]] = frozenset,
        acts: Callable[[], None] = lambda: None,
    ) -> None:
        self._journal, self._backend, self._look, self._runbooks = journal, backend, look, runbooks
        self._cluster, self._clock, self._watchdog, self._suppressed = cluster, clock, watchdog, suppressed
        self._acts = acts
        self._pulse: Heard | None = None
        self._switch = KillSwitch(journal)
        self._tried_s: dict[str, float] = {}
        self._folding = Folding(clock)
        self.newest: dict[str, Decision] = {}
        """What was made of each episode that is looked at again, as of the last look; the journal has less of it."""
        self.episodes = Episodes(journal)

    def step(self) -> None:
        """Go once through all episodes: end what is not wanted any more, then plan what is due."""
        self._listen()
        self.episodes.follow()
        runs = self.runs()
        self._end_what_is_over(runs)
        self._note_what_ended()
        due = [e for e in self.episodes.firing() if self._due(e)]
        self._tried_s = {e.id: self._tried_s[e.id] for e in self.episodes.firing() if e.id in self._tried_s}
        seen: _Seen | PdopsError | None = None
        for episode in due:
            self._tried_s[episode.id] = self._clock.monotonic()
            decision = self._before_looking(episode)
            if decision is None:
                seen = self._seen() if seen is None else seen
                decision = self._decide(episode, seen)
            if decision is not None:
                self._note(episode, decision)

    def close(self) -> None:
        """Write down what was kept of alerts that fire on, as the process ends.

        Raises:
            JournalError: it could not be written.
        """
        for episode in self.episodes.firing():
            self._note_kept(episode, self._folding.repeats(episode))

    def _listen(self) -> None:
        """Write down when the Watchdog falls silent and when it is heard again."""
        before, pulse = self._pulse, self._watchdog.pulse()
        self._pulse = pulse.state
        silent = Heard.SILENT
        if before is pulse.state or silent not in (before, pulse.state):
            return
        why = f"{pulse.told()}; nothing starts by itself" if pulse.state is silent else "it comes again"
        with self._journal.transaction() as tx:
            tx.append("noted", actor=ACTOR, body={"watchdog": pulse.state, "say": f"{self._cluster}: {why}"})

    def runs(self) -> tuple[Run, ...]:
        """Return the runs of this cluster that alerts asked for and that have not ended."""
        return tuple(
            r for r in self._journal.runs(open_only=True)
            if r.cluster == self._cluster and r.plan["asked"] == Asked.ALERT
        )  # fmt: skip

    def _due(self, episode: Episode) -> bool:
        made = episode.decision.made if episode.decision is not None else None
        if made is None:
            return True
        if made is Made.OPENING and episode.decision is not None and self._known(episode.decision.run):
            # The process ended between opening the run and saying so.
            self._note(episode, Decision(made=Made.JOINED, runbook=episode.decision.runbook, run=episode.decision.run))
            return False
        tried_s = self._tried_s.get(episode.id)
        return made not in FINAL and (tried_s is None or self._clock.monotonic() - tried_s >= RETRY_S)

    def _known(self, run_id: str) -> bool:
        with self._journal.transaction() as tx:
            return tx.run(run_id) is not None

    def _before_looking(self, episode: Episode) -> Decision | None:
        named = episode.labels.get("cluster")
        if named is not None and named != self._cluster:
            return Decision(made=Made.OTHER_CLUSTER, why=f"it is about {named}, this is {self._cluster}")
        if not any(episode.name in r.triggers.alerts for r in self._runbooks.values()):
            return Decision(made=Made.NO_RUNBOOK, why="no runbook names this alert")
        if episode.id in self._suppressed():
            return Decision(made=Made.SILENCED, why="it is silenced or inhibited in Alertmanager")
        return None

    def _seen(self) -> _Seen | PdopsError:
        try:
            view, report = self._look()
            if self._backend is None:
                read = without_backend(view)
                return _Seen(view, report, read.state, read)
            state = self._backend.observe()
            return _Seen(view, report, state, BackendState(self._backend.name, state, self._backend.capabilities()))
        except PdopsError as error:
            return error

    def _decide(self, episode: Episode, seen: _Seen | PdopsError) -> Decision | None:
        if isinstance(seen, PdopsError):
            made = Made.NO_DATA if isinstance(seen, UnreachableError) else Made.HELD
            return Decision(made=made, why=str(seen))
        refused: list[tuple[Plan, bool]] = []
        for runbook in candidates(episode.name, self._runbooks.values(), seen.report):
            try:
                plan = make_plan(
                    runbook, seen.view, seen.report, seen.backend, {}, made_at_s=self._clock.now(), asked=Asked.ALERT
                )
            except PdopsError as error:
                return Decision(made=Made.HELD, why=str(error), runbook=runbook.id)
            if (joined := self._joined(episode, runbook, plan)) is not None:
                return joined
            agrees = next(g.outcome for g in plan.guards if g.check in AGREEMENT)
            other = elsewhere(runbook, seen.report, seen.view.cluster, episode.labels.get("worker"))
            if agrees is Outcome.PASS and other is not None:
                return Decision(made=Made.DISAGREES, why=other, runbook=runbook.id)
            reads = self._backend is None and plan.decision is Comes.HELD and plan.mode is Mode.ADVISE
            if plan.decision is Comes.READY or (reads and agrees is Outcome.PASS):
                return self._ready(episode, plan, seen)
            if plan.decision is Comes.HELD and agrees is Outcome.PASS:
                # What the diagnosis asks for first is not passed over for something rougher.
                return Decision(made=Made.HELD, why="; ".join(plan.reasons), runbook=runbook.id)
            refused.append((plan, agrees is Outcome.PASS))
        return turned_down(refused)

    def _joined(self, episode: Episode, runbook: Runbook, plan: Plan) -> Decision | None:
        for run in self.runs():
            if run.runbook == runbook.id and run.plan["parameters"] == plan.parameters:
                return Decision(made=Made.JOINED, why="a run is there already", runbook=runbook.id, run=run.id)
        if any(p.type == "worker" for p in runbook.parameters.values()):
            return None
        for other in self.episodes.firing():
            made = other.decision
            if other.id != episode.id and made is not None and made.made is Made.ADVISED and made.runbook == runbook.id:
                return Decision(made=Made.JOINED, why=f"advised for {other.name}", runbook=runbook.id, plan=made.plan)
        return None

    def _ready(self, episode: Episode, plan: Plan, seen: _Seen) -> Decision | None:
        if plan.mode is Mode.ADVISE:
            told = "; ".join(plan.effects)
            return Decision(
                made=Made.ADVISED,
                why=told,
                runbook=plan.runbook,
                plan=str(write_plan(plan, self._journal.path.with_name(PLANS))),
            )
        auto = plan.mode is Mode.AUTO and plan.risk is Risk.SAFE
        if (why := self._switch.why(self._cluster)) is not None:
            return Decision(made=Made.FROZEN, why=why, runbook=plan.runbook)
        pulse = self._watchdog.pulse()
        if auto and not pulse.alive:
            return Decision(made=Made.WATCHDOG_SILENT, why=pulse.told(), runbook=plan.runbook)
        busy = next((r for r in self.runs() if r.state is not RunState.PLANNED), None)
        if auto and busy is not None:
            return Decision(made=Made.LATER, why=f"run {busy.id} is {busy.state}", runbook=plan.runbook)
        with self._journal.transaction() as tx:
            why = allowance.denied(tx, plan, plan.id, locks.pools(seen.state))
        if why is not None:
            return Decision(made=Made.LATER, why=why, runbook=plan.runbook)
        # First, so that a process that ends here has not forgotten for which episode a run was opened.
        self._note(episode, Decision(made=Made.OPENING, runbook=plan.runbook, run=plan.id))
        try:
            self._opened(plan, episode.requester)
            if auto:
                approval.approve(self._journal, plan.id, ACTOR)
                self._acts()
        except (RefusedError, JournalError) as error:
            return Decision(made=Made.REFUSED, why=str(error), runbook=plan.runbook)
        made = Made.STARTED if auto else Made.WAITS
        return Decision(made=made, why="; ".join(plan.effects), runbook=plan.runbook, run=plan.id)

    def _opened(self, plan: Plan, requester: str) -> None:
        assert self._backend is not None, "a plan is ready with a backend only"
        Executor(
            self._journal, self._backend, Signals(self._look), clock=self._clock, sleep=_never, actor=requester
        ).open(plan)

    def _end_what_is_over(self, runs: tuple[Run, ...]) -> None:
        for run in runs:
            about = self.episodes.of_run(run.id)
            old = self._clock.now() > float(run.plan["expires_at_s"])
            if about and not any(e.firing for e in about) and aborting.untouched(run):
                self._ended(run, RunState.ABORTED, "the alert is resolved")
            elif old and run.state is RunState.PLANNED:
                self._ended(run, RunState.REFUSED, "nobody approved it before the plan was too old", only=run.state)
            elif old and run.state is RunState.APPROVED:
                self._ended(run, RunState.REFUSED, "it did not begin before the plan was too old", only=run.state)

    def _ended(self, run: Run, to: RunState, why: str, *, only: RunState | None = None) -> None:
        with self._journal.transaction() as tx:
            now = tx.run(run.id)
            if now is not None and aborting.untouched(now) and only in (None, now.state):
                tx.append("state", run.id, actor=ACTOR, body={"to": to, "why": why})

    def _note(self, episode: Episode, decision: Decision) -> None:
        if self._folding.written(episode, decision):
            with self._journal.transaction() as tx:
                note(tx, episode, decision, actor=ACTOR, repeats=self._folding.repeats(episode))
            self._folding.noted(episode, decision)
            self.episodes.follow()
        if decision.made in FINAL:
            self.newest.pop(episode.id, None)
        else:
            self.newest[episode.id] = decision

    def _note_what_ended(self) -> None:
        """Write down what was kept of alerts that are over."""
        firing = self.episodes.firing()
        for gone in self.newest.keys() - {e.id for e in firing}:
            del self.newest[gone]
        for name, repeats in self._folding.ended(firing).items():
            self._note_kept(self.episodes.get(name), repeats)
            self._folding.forget(name)

    def _note_kept(self, episode: Episode | None, repeats: tuple[Repeat, ...]) -> None:
        if repeats and episode is not None and episode.decision is not None:
            with self._journal.transaction() as tx:
                note(tx, episode, episode.decision, actor=ACTOR, repeats=repeats)


def _never(_seconds: float) -> None:
    raise AssertionError("a planner carries nothing out")
