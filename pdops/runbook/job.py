"""One run on its way: gate, act and verify step by step, watch, or take back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pdops.actuate.backend import State
from pdops.runbook import allowance
from pdops.runbook.gates import Outcome
from pdops.runbook.journal import Run, StepRecord, Transaction
from pdops.runbook.plan import Plan, PlannedStep
from pdops.runbook.states import RunState, StepState
from pdops.runbook.stepping import CANARY, Deed, Hand, HoldError, StepError, Verdict, deed, undoing

if TYPE_CHECKING:
    from pdops.runbook.execute import Executor

POLL_S = 2.0
"""Between two looks while something is waited for."""
PATIENCE_S = 30.0
"""How long data may be missing after the watch before the run is held: two scrapes at the slowest usual interval."""
_R, _S = RunState, StepState


class Job:
    """Carries one claimed run on.

    Args:
        executor: what it works with.
        plan: what is to be done.
        run: where it stands.
        fence: of this claim.
        hand: does its effects.
    """

    def __init__(self, executor: Executor, plan: Plan, run: Run, fence: int, hand: Hand) -> None:
        self._x, self._plan, self._run, self._fence, self._hand = executor, plan, run, fence, hand

    def go(self) -> None:
        """Go on until the run has ended or is held."""
        try:
            self._on()
        except HoldError as hold:
            self._to(_R.HELD, str(hold))

    def _on(self) -> None:
        state = self._run.state
        if state is _R.HELD:
            was = self._run.before_hold
            state = self._to(was if was is _R.GATING or was is _R.ROLLING_BACK else _R.ACTING, "resumed")
        if state in (_R.APPROVED, _R.GATING) and not self._gated(state):
            return
        if state is not _R.ROLLING_BACK:
            try:
                self._asked_to_stop()
                self._act()
                self._watch()
                self._to(_R.DONE, self._missing())
                return
            except StepError as error:
                self._to(_R.ROLLING_BACK, str(error))
        self._take_back()

    def _gated(self, state: RunState) -> bool:
        if state is _R.APPROVED:
            self._to(_R.GATING)
        self._x.reached("gating")
        seen = self._x.backend.observe()
        outcome, why = self._x.admitted(self._plan, seen)
        if outcome is Outcome.FAIL:
            self._to(_R.REFUSED, why)
            return False
        if outcome is Outcome.UNKNOWN:
            raise HoldError(why)
        if (no := self._x.begin(self._plan, self._run, self._fence, seen)) is not None:
            raise HoldError(no)
        self._x.reached("started")
        return True

    def _act(self) -> None:
        for position, step in enumerate(self._plan.steps):
            record = self._x.journal.steps(self._run.id).get(position)
            if record is not None and (record.state is _S.VERIFIED or _without(record, step)):
                continue
            self._asked_to_stop()
            self._be(_R.ACTING)
            try:
                self._step(deed(position, step), record, step)
            except StepError:
                # Only what failed by itself is gone on without: not what was aborted, or what a guard forbids.
                now = self._x.journal.steps(self._run.id).get(position)
                if self._x.journal.run(self._run.id).abort or now is None or not _without(now, step):
                    raise

    def _step(self, it: Deed, record: StepRecord | None, step: PlannedStep) -> None:
        if record is None or record.state is not _S.APPLIED or not it.settled:
            if record is None and step.skip_when and self._skipped(it, step):
                return
            self._hand.do(it, record, lambda state: self._x.judge.guard(self._plan, step, state))
        self._be(_R.VERIFYING)
        self._x.reached("verifying")
        try:
            # Nobody sends another canary: one that failed does not pass by waiting, one that is not told yet may.
            final = step.action == CANARY
            self._until(lambda state: self._verified(it, step, state), step.timeout_s, step.id, final=final)
        except StepError as error:
            self._hand.note(it, _S.FAILED, detail=str(error))
            raise
        self._hand.note(it, _S.VERIFIED)
        self._x.reached("verified")

    def _missing(self) -> str:
        """Say what a run went on without."""
        records = self._x.journal.steps(self._run.id)
        found = [
            f"without {step.id}: {records[n].detail}"
            for n, step in enumerate(self._plan.steps)
            if n in records and _without(records[n], step)
        ]
        return "; ".join(found)

    def _skipped(self, it: Deed, step: PlannedStep) -> bool:
        end = self._x.clock.monotonic() + step.settle_s
        while True:
            outcome, why = self._x.judge.skip(self._plan, step, self._x.backend.observe())
            if outcome is Outcome.PASS:
                self._hand.note(it, _S.VERIFIED, changed=False, detail="not needed")
                return True
            if self._x.clock.monotonic() >= end:
                break
            self._asked_to_stop()
            self._x.sleep(POLL_S)
        if outcome is Outcome.UNKNOWN:
            raise HoldError(f"whether {step.id} is needed is not known: {why}")
        return False

    def _verified(self, it: Deed, step: PlannedStep, state: State) -> Verdict:
        if it.subject is not None and it.settled:
            seen = state.get(it.subject)
            if not seen.known:
                return Outcome.UNKNOWN, f"{it.subject} is not known: {seen.why}"
            if seen.value != it.target:
                return Outcome.FAIL, f"{it.subject} is {seen.value}, not {it.target}"
        return self._x.judge.verify(self._plan, step, state)

    def _until(
        self,
        ask: Callable[[State], Verdict],
        timeout_s: float,
        what: str,
        *,
        more_s: float | None = None,
        final: bool = False,
    ) -> None:
        """Ask until it passes; unknown has `more_s` (else as much again) after the time, a fail that is not final the time."""
        end, extended = self._x.clock.monotonic() + timeout_s, False
        while True:
            outcome, why = ask(self._x.backend.observe())
            if outcome is Outcome.PASS:
                return
            over = self._x.clock.monotonic() >= end
            if outcome is Outcome.FAIL and (final or over):
                raise StepError(f"{what}: {why}")
            if over:
                if extended:
                    raise HoldError(f"{what}: {why}")
                end, extended = self._x.clock.monotonic() + (timeout_s if more_s is None else more_s), True
            self._asked_to_stop()
            self._x.sleep(POLL_S)

    def _watch(self) -> None:
        run = self._x.journal.run(self._run.id)
        until_s = run.observe_until_s if run.state is _R.OBSERVING else None
        if until_s is None:
            until_s = self._x.clock.now() + self._plan.observe_s
            self._to(_R.OBSERVING, until_s=until_s)
        self._x.reached("observing")
        # Counted on the monotonic clock, as a wall clock that is set must not cut the watch short or make it endless.
        end = self._x.clock.monotonic() + min(max(0.0, until_s - self._x.clock.now()), self._plan.observe_s)
        while (left := end - self._x.clock.monotonic()) > 0:
            self._asked_to_stop()
            self._x.sleep(min(POLL_S, left))
        self._until(lambda state: self._x.judge.success(self._plan, state), 0.0, "after all steps", more_s=PATIENCE_S)

    def _take_back(self) -> None:
        done = self._x.journal.steps(self._run.id)
        undone = self._x.journal.steps(self._run.id, "undo")
        stays = ""
        for position in sorted(done, reverse=True):
            record, step = done[position], self._plan.steps[position]
            if record.changed is False:
                continue
            it = undoing(position, step, failed=record.state in (_S.FAILED, _S.INTENT))
            if it is None:
                if deed(position, step).settled and not self._as_before(record, step):
                    # What came before may have been made for this: a worker that was cordoned for a restart stays so.
                    stays = f"{step.id}: {step.no_undo or 'nothing takes it back'}"
                    break
                continue
            before = undone.get(position)
            if before is not None and before.state is _S.VERIFIED:
                continue
            try:
                self._undo(it, before, step)
            except StepError as error:
                self._end(_R.FAILED, f"not taken back: {error}")
                return
        if stays:
            self._end(_R.FAILED, f"{self._x.journal.run(self._run.id).why}; not taken back: {stays}")
        else:
            self._end(_R.ROLLED_BACK, self._x.journal.run(self._run.id).why)

    def _as_before(self, record: StepRecord, step: PlannedStep) -> bool:
        """Whether a step that did not get through changed nothing."""
        if record.state not in (_S.FAILED, _S.INTENT) or step.subject is None or record.before is None:
            return False
        return self._x.backend.observe().get(step.subject).value == record.before

    def _undo(self, it: Deed, record: StepRecord | None, step: PlannedStep) -> None:
        if record is None or record.state is not _S.APPLIED:
            self._hand.do(it, record, lambda _state: (Outcome.PASS, ""))

        def is_back(state: State) -> Verdict:
            if it.subject is None or not it.settled:
                return Outcome.PASS, ""
            seen = state.get(it.subject)
            if not seen.known:
                return Outcome.UNKNOWN, f"{it.subject} is not known: {seen.why}"
            return (Outcome.PASS if seen.value == it.target else Outcome.FAIL), f"{it.subject} is {seen.value}"

        self._until(is_back, step.timeout_s, f"taking {it.id} back")
        self._hand.note(it, _S.VERIFIED)
        self._x.reached("undone")

    def _asked_to_stop(self) -> None:
        run = self._x.journal.run(self._run.id)
        if run.abort and run.state is not _R.ROLLING_BACK:
            raise StepError("it was aborted")

    def _be(self, state: RunState) -> None:
        if self._x.journal.run(self._run.id).state is not state:
            self._to(state)

    def _to(self, state: RunState, why: str = "", *, until_s: float | None = None) -> RunState:
        with self._x.journal.transaction() as tx:
            self._append(tx, state, why, until_s)
        return state

    def _end(self, state: RunState, why: str) -> None:
        """End it badly, and freeze the cluster when that has happened too often."""
        with self._x.journal.transaction() as tx:
            self._append(tx, state, why, None)
            allowance.trip(tx, self._plan.cluster)

    def _append(self, tx: Transaction, state: RunState, why: str, until_s: float | None) -> None:
        body = {"to": state, "why": why, "until_s": until_s}
        tx.append("state", self._run.id, actor=self._x.actor, body=body, fence=self._fence)


def _without(record: StepRecord, step: PlannedStep) -> bool:
    """Whether a run goes on without a step that failed."""
    return record.state is _S.FAILED and step.if_fails == "degrade"
