"""One effect: look, compare, write the intent down, do it, write down that it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pdops.actuate.backend import Backend, Effect, Fence, Params, State, Value
from pdops.errors import ActionError, BusyError, DeploymentError, FencedError
from pdops.model.frame import Probe
from pdops.runbook.actions import actions
from pdops.runbook.gates import Outcome
from pdops.runbook.journal import Journal, Phase, StepRecord
from pdops.runbook.killswitch import KillSwitch
from pdops.runbook.plan import PlannedStep
from pdops.runbook.states import StepState

KEEP, CANARY = "evidence.keep", "pair.canary"
Verdict = tuple[Outcome, str]
"""An answer, and why."""


class HoldError(Exception):
    """A person has to look: something is not known, frozen, or was moved by somebody else."""


class StepError(Exception):
    """A step did not do what it is for; what was done is to be taken back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """One effect as it is carried out. `before` None accepts whatever is there; `loose` accepts it too, and is done even
    when its subject is so already: a step that failed half-way may have left more than its subject shows.

    `unrepeatable` is for what must not happen twice and leaves no trace to look for.
    """

    phase: Phase
    position: int
    id: str
    action: str
    params: Params
    subject: str | None
    before: Value
    target: Value
    loose: bool = False
    unrepeatable: bool = False

    @property
    def settled(self) -> bool:
        """Whether its subject stays as it is set, so that looking tells whether it was done."""
        spec = actions().get(self.action)
        return self.subject is not None and (spec is None or spec.compares)


def internal(action: str) -> bool:
    """Whether an action is done by being written down."""
    spec = actions().get(action)
    return spec is not None and not spec.needs_backend


def deed(position: int, step: PlannedStep) -> Deed:
    """Return the effect of a step."""
    return Deed(
        phase="do", position=position, id=step.id, action=step.action, params=step.params, subject=step.subject,
        before=step.before, target=step.target, unrepeatable=step.once and step.subject is None,
    )  # fmt: skip


def undoing(position: int, step: PlannedStep, *, failed: bool) -> Deed | None:
    """Return what takes a step back, or None when nothing does; after a failed one its subject may be anything."""
    if step.undo is None:
        return None
    return Deed(
        phase="undo", position=position, id=step.id, action=step.undo.action, params=step.undo.params,
        subject=step.undo.subject, before=step.target, target=step.undo.target, loose=failed,
    )  # fmt: skip


class Hand:
    """Carries effects out for one run.

    Args:
        journal: where it is written down first.
        backend: what does it.
        switch: read before every effect.
        cluster: whose freeze counts.
        fence: of the run.
        actor: who it is done for.
        reached: told at every boundary, so that tests can stop there.
        heard: takes what an effect asked on its way.
        evidence: gives what `evidence.keep` writes down.
    """

    def __init__(
        self,
        journal: Journal,
        backend: Backend,
        switch: KillSwitch,
        cluster: str,
        fence: Fence,
        actor: str,
        reached: Callable[[str], None],
        heard: Callable[[tuple[Probe, ...]], None],
        evidence: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._journal, self._backend, self._switch = journal, backend, switch
        self._cluster, self._fence, self._actor, self._reached = cluster, fence, actor, reached
        self._heard, self._evidence = heard, evidence

    def do(self, it: Deed, record: StepRecord | None, guard: Callable[[State], Verdict]) -> None:
        """Bring a deed about, or find that it is so already.

        Raises:
            HoldError: a person has to look.
            StepError: it could not be done, or a guard forbids it by now.
        """
        if why := self._switch.why(self._cluster):
            raise HoldError(why)
        state = self._backend.observe()
        before = self._compare(it, record, state)
        if before is _DONE:
            # Between the intent and now it became so: by us, as far as anybody can tell.
            self.note(it, StepState.APPLIED, changed=record is not None, detail="it was so already")
            return
        outcome, why = guard(state)
        if outcome is Outcome.UNKNOWN:
            raise HoldError(f"before {it.id}: {why}")
        if outcome is Outcome.FAIL:
            raise StepError(f"before {it.id}: {why}")
        self._reached("before-intent")
        with self._journal.transaction() as tx:
            if frozen := tx.frozen(self._cluster):
                raise HoldError(frozen)
            body = {"phase": it.phase, "position": it.position, "id": it.id, "to": StepState.INTENT, "before": before,
                    "action": it.action, "params": dict(it.params), "subject": it.subject, "target": it.target}  # fmt: skip
            tx.append("step", self._fence.run, actor=self._actor, body=body, fence=self._fence.number)
        self._reached("after-intent")
        if why := self._switch.why(self._cluster):
            raise HoldError(why)
        try:
            if it.action == KEEP:
                self._keep()
                effect = Effect(changed=False, detail="the diagnosis is in the journal")
            elif internal(it.action):
                effect = Effect(changed=False, detail=str(it.params.get("text", "")))
            else:
                effect = self._backend.apply(it.action, it.params, self._fence)
        except FencedError:
            raise
        except BusyError as error:
            # No fault of the step: taking back what came before would meet the same.
            raise HoldError(f"before {it.id}: {error}") from error
        except (ActionError, DeploymentError) as error:
            self._reached("after-effect")
            self.note(it, StepState.FAILED, detail=str(error))
            raise StepError(f"{it.id}: {error}") from error
        self._reached("after-effect")
        self._heard(effect.probes)
        self.note(it, StepState.APPLIED, changed=effect.changed or record is not None, detail=effect.detail)
        self._reached("after-applied")

    def _keep(self) -> None:
        body = {"diagnosis": self._evidence()}
        with self._journal.transaction() as tx:
            tx.append("noted", self._fence.run, actor=self._actor, body=body, fence=self._fence.number)

    def note(self, it: Deed, to: StepState, *, changed: bool | None = None, detail: str = "") -> None:
        """Write down how far a deed is."""
        body = {"phase": it.phase, "position": it.position, "id": it.id, "to": to, "changed": changed, "detail": detail}
        with self._journal.transaction() as tx:
            tx.append("step", self._fence.run, actor=self._actor, body=body, fence=self._fence.number)

    def _compare(self, it: Deed, record: StepRecord | None, state: State) -> Value | object:
        """Return what its subject is now, or `_DONE` when that is the target."""
        intended = record is not None and record.state is StepState.INTENT
        if it.subject is None or not it.settled:
            if intended and it.unrepeatable:
                raise HoldError(f"whether {it.id} happened cannot be told, and it must not happen twice")
            return None
        seen = state.get(it.subject)
        if not seen.known:
            raise HoldError(f"before {it.id}: {it.subject} is not known: {seen.why}")
        if seen.value == it.target and not it.loose:
            return _DONE
        expected = record.before if intended and record is not None and record.before is not None else it.before
        if expected is not None and seen.value != expected and not it.loose:
            raise HoldError(
                f"before {it.id}: {it.subject} is {seen.value}, neither {expected} as planned nor {it.target}: "
                "somebody else moved it"
            )
        return seen.value


_DONE = object()
