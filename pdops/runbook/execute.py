"""Carry plans out: one state machine, which begins again by looking wherever it was stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Protocol

from pydantic import TypeAdapter

from pdops.actuate.backend import Backend, Fence, State
from pdops.clock import Clock
from pdops.errors import JournalError, RefusedError
from pdops.model.frame import Probe
from pdops.runbook import aborting, allowance, approval, locks
from pdops.runbook.claim import claimed
from pdops.runbook.gates import Outcome
from pdops.runbook.job import Job
from pdops.runbook.journal import Journal, Run, cleaned
from pdops.runbook.killswitch import KillSwitch
from pdops.runbook.model import Risk
from pdops.runbook.plan import Asked, Decision, Plan, PlannedStep, canonical, facts_hash, plan_hash
from pdops.runbook.states import RunState
from pdops.runbook.stepping import Hand, Verdict, internal

_PLAN = TypeAdapter(Plan)


class Judge(Protocol):
    """Guards and verification, answered from signals."""

    def hear(self, probes: tuple[Probe, ...]) -> None:
        """Take what an effect asked on its way."""
        ...

    def evidence(self) -> Mapping[str, Any]:
        """Return the diagnosis as of now in its published form, to be kept."""
        ...

    def admit(self, plan: Plan, state: State) -> Verdict:
        """Say whether the plan still fits: facts as they were, guards pass."""
        ...

    def guard(self, plan: Plan, step: PlannedStep, state: State) -> Verdict:
        """Say whether one effect may happen now."""
        ...

    def skip(self, plan: Plan, step: PlannedStep, state: State) -> Verdict:
        """Say whether a step is not needed: pass skips it."""
        ...

    def verify(self, plan: Plan, step: PlannedStep, state: State) -> Verdict:
        """Say whether a step did what it is for."""
        ...

    def success(self, plan: Plan, state: State) -> Verdict:
        """Say whether the symptom is gone and nothing else is worse."""
        ...


class Executor:
    """Opens, approves, carries out and ends runs.

    Args:
        journal: what is written down.
        backend: what changes the cluster.
        judge: what answers guards and verification.
        clock: where time comes from.
        sleep: waits seconds.
        actor: who asks.
        reached: told at every boundary between two writes or effects.
    """

    def __init__(
        self,
        journal: Journal,
        backend: Backend,
        judge: Judge,
        *,
        clock: Clock,
        sleep: Callable[[float], None],
        actor: str,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.journal, self.backend, self.judge = journal, backend, judge
        self.clock, self.sleep, self.actor, self.reached = clock, sleep, actor, reached
        self.switch = KillSwitch(journal)

    def open(self, plan: Plan) -> Run:
        """Return the run of a plan, making it when it is new: one plan has one run, however often it comes.

        Raises:
            RefusedError: the plan was changed after it was made, or says itself that it may not be carried out.
        """
        if plan_hash(plan) != plan.plan_hash:
            raise RefusedError("the plan was changed after it was made", where=plan.id, hint="make a new one")
        with self.journal.transaction() as tx:
            found = tx.run(plan.id)
            if found is None:
                if plan.decision is not Decision.READY:
                    raise RefusedError(
                        f"the plan is {plan.decision}", where=plan.id, why="; ".join(plan.reasons),
                        hint="`pdops runbook plan` again once that has changed",
                    )  # fmt: skip
                body = {"plan": json.loads(canonical(asdict(plan)))}
                if cleaned(body) != body:
                    raise RefusedError(
                        "the plan holds what looks like a credential", where=plan.id, hint="keep secrets in files"
                    )
                tx.append("opened", plan.id, actor=self.actor, body=body)
                if plan.risk is Risk.SAFE and plan.asked is Asked.PERSON:
                    tx.append("approved", plan.id, actor=self.actor, body={"why": "safe, and asked for by a person"})
                found = tx.run(plan.id)
            assert found is not None
            return found

    def approve(self, run_id: str) -> Run:
        """Approve a run; see `approval.approve`."""
        return approval.approve(self.journal, run_id, self.actor)

    def drive(self, run_id: str) -> Run:
        """Carry a run out from wherever it is to an end or to a hold, and return it.

        Raises:
            RefusedError: it waits for approval, or another process carries it out.
        """
        run = self.journal.run(run_id)
        if run.ended:
            return run
        if run.state is RunState.PLANNED:
            raise RefusedError(
                "the run waits for approval",
                where=run.id,
                why=f"it is {run.risk}",
                hint=f"pdops runbook approve {run.id}",
            )
        with claimed(self.journal, run.id, self.actor) as fence:
            # What another process wrote down before the claim counts.
            run = self.journal.run(run.id)
            if not run.ended:
                plan = planned(run)
                hand = Hand(
                    self.journal,
                    self.backend,
                    self.switch,
                    plan.cluster,
                    Fence(run.id, fence),
                    self.actor,
                    self.reached,
                    self.judge.hear,
                    self.judge.evidence,
                )
                Job(self, plan, run, fence, hand).go()
        return self.journal.run(run.id)

    def abort(self, run_id: str) -> Run:
        """End a run: what it did is taken back. One that another process carries out stops at its next safe point.

        Raises:
            JournalError: there is no such run, or it has ended.
        """
        run = aborting.ask(self.journal, run_id, self.actor, f"by {self.actor}")
        if run.ended:
            return run
        try:
            return self.drive(run.id)
        except RefusedError:
            return self.journal.run(run.id)

    def admitted(self, plan: Plan, state: State) -> Verdict:
        """Say whether a run may begin as far as the plan and the signals tell."""
        if self.clock.now() > plan.expires_at_s:
            return Outcome.FAIL, f"the plan is too old: it was made {self.clock.now() - plan.made_at_s:.0f} s ago"
        offers = self.backend.capabilities()
        for step in plan.steps:
            refusal = offers.refusal(step.action)
            if refusal is not None and not internal(step.action):
                return Outcome.FAIL, f"{step.action} is not offered: {refusal}"
        if facts_hash(state) != plan.facts_hash:
            moved = [
                f"{s.subject} was {s.before}, is {state.get(s.subject).value}"
                for s in plan.steps
                if s.subject is not None and s.before is not None and state.get(s.subject).value != s.before
            ]
            return (
                Outcome.FAIL,
                f"facts have changed since the plan was made: {'; '.join(moved) or 'not those of its steps'}",
            )
        return self.judge.admit(plan, state)

    def begin(self, plan: Plan, run: Run, fence: int, state: State) -> str | None:
        """Take locks and budget and begin, as one; return why not, or None."""
        with self.journal.transaction() as tx:
            why = self.switch.why(plan.cluster) or allowance.denied(tx, plan, run.id, locks.pools(state))
            if why is None:
                body = {"locks": locks.wanted(plan), "cooldown_s": plan.cooldown_s}
                tx.append("started", run.id, actor=self.actor, body=body, fence=fence)
            return why


def planned(run: Run) -> Plan:
    """Return the plan of a run as it was opened.

    Raises:
        JournalError: it is not what was approved.
    """
    plan = _PLAN.validate_python(dict(run.plan))
    if plan_hash(plan) != plan.plan_hash:
        hint = "`pdops runbook verify-audit` says what else was changed"
        raise JournalError("the plan in the journal was changed", where=run.id, hint=hint)
    return plan
