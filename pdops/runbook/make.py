"""Make a plan. Pure: the same runbook, View, diagnosis, state and parameters give the same plan, hash included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pdops.actuate.backend import Capabilities, State, Value
from pdops.diagnose.context import Context
from pdops.errors import RunbookError
from pdops.model.report import Report
from pdops.model.view import View
from pdops.runbook.actions import actions
from pdops.runbook.gates import Answer, Ask, Facts, Outcome, ask
from pdops.runbook.model import Runbook, ScopeOf
from pdops.runbook.plan import TTL_S, Asked, Decision, Plan, PlannedStep, facts_hash, sealed
from pdops.runbook.questions_report import matching
from pdops.runbook.targets import choose
from pdops.runbook.unfold import Unfolded, asks, unfold
from pdops.runbook.world import World, state_of

NO_BACKEND = "none"
NOTHING_ANSWERS = "nothing-answers"
AGREEMENT = frozenset({"diagnosis-agrees", NOTHING_ANSWERS})
"""Guards of which a plan for an alert has one: that its runbook is what is asked for."""
_ONLY_READ = "no backend is given, so this is for reading; what only a backend knows is open"


@dataclass(frozen=True, slots=True)
class BackendState:
    """One look at a backend: its name, what is there and what it can do; None for one that is not there."""

    name: str
    state: State
    capabilities: Capabilities | None


def without_backend(view: View) -> BackendState:
    """Return what a View alone tells, for a plan that is read and never carried out."""
    return BackendState(NO_BACKEND, state_of(view), None)


def make_plan(
    runbook: Runbook,
    view: View,
    report: Report,
    backend: BackendState,
    parameters: Mapping[str, Value],
    *,
    made_at_s: float,
    asked: Asked = Asked.PERSON,
    recovery: bool = False,
) -> Plan:
    """Plan a runbook, or with `recovery` its way back.

    It is refused when the diagnosis disagrees, a guard fails, a step has no target or the backend does not offer it; it is
    held when something that has to be known is not. Reasons are given for each.

    Raises:
        RunbookError: a parameter does not exist or is out of bounds, or there is no way back.
    """
    if recovery:
        back = runbook.recovering()
        if back is None:
            raise RunbookError("runbook has no recovery", where=runbook.id, hint="leave --recovery out")
        runbook = back
    causes, checks = runbook.triggers.diagnosis.causes, runbook.triggers.diagnosis.checks
    found = matching(report, runbook.id, causes, checks)
    chosen = choose(runbook, parameters, found, World(backend.state))
    facts = Facts(view=view, report=report, state=backend.state)
    guards = _guards(runbook, chosen.values, World(backend.state), asked, facts)
    unfolded = Unfolded()
    if not chosen.missing:
        refusals = None
        if backend.capabilities is not None:
            refusals = {name: backend.capabilities.refusal(name) for name in actions()}
        unfolded = unfold(runbook, chosen.values, World(backend.state), refusals)
    decision, reasons = _decide(backend, chosen.missing, guards, unfolded)
    steps = tuple(unfolded.steps)
    return sealed(
        Plan(
            runbook=runbook.id,
            runbook_version=runbook.version,
            recovery=recovery,
            title=runbook.title,
            cluster=view.cluster.name,
            backend=backend.name,
            asked=asked,
            mode=runbook.mode,
            # Who must approve it goes by what is done, not by what its file calls itself.
            risk=max((runbook.risk, *(s.risk for s in steps if not s.already)), key=lambda r: r.rank),
            scope=runbook.scope,
            touches=_touches(runbook, steps),
            topology=any(actions()[s.action].topology and not s.already for s in steps),
            parameters=chosen.values,
            made_at_s=made_at_s,
            expires_at_s=made_at_s + TTL_S,
            view_at_s=view.at_s,
            facts_hash=facts_hash(backend.state),
            decision=decision,
            reasons=reasons,
            guards=guards,
            steps=steps,
            left_out=tuple(unfolded.left_out),
            success=asks(runbook.success, chosen.values, World(backend.state)),
            observe_s=runbook.observe_s,
            cooldown_s=runbook.cooldown_s,
            budget_per_hour=runbook.budget_per_hour,
            min_ready=runbook.min_ready,
            effects=tuple(_effect(s) for s in steps),
            will_not_fix=runbook.will_not_fix,
            notes=runbook.notes,
        )
    )


def _guards(
    runbook: Runbook, values: Mapping[str, Value], world: World, asked: Asked, facts: Facts
) -> tuple[Answer, ...]:
    trigger = runbook.triggers.diagnosis
    wanted = [Ask(check="not-advised-against", params={"runbook": runbook.id})]
    unanswered = asked is Asked.ALERT and runbook.triggers.unanswered and Context(facts.view).nothing_answers
    if unanswered:
        wanted.insert(0, Ask(check=NOTHING_ANSWERS))
    elif not (asked is Asked.PERSON and runbook.triggers.by_hand):
        about: dict[str, Value] = {
            "runbook": runbook.id,
            "causes": " ".join(trigger.causes),
            "checks": " ".join(trigger.checks),
            "min_confidence": trigger.min_confidence,
        }
        wanted.insert(0, Ask(check="diagnosis-agrees", params=about))
    if asked is Asked.ALERT and not unanswered and not any(g.check == "data-fresh" for g in runbook.guards):
        wanted.append(Ask(check="data-fresh"))
    return tuple(ask(one, facts) for one in (*wanted, *asks(runbook.guards, values, world)))


def _decide(
    backend: BackendState, missing: tuple[str, ...], guards: tuple[Answer, ...], unfolded: Unfolded
) -> tuple[Decision, tuple[str, ...]]:
    against = [f"{g.check}: {g.observed}; {g.why}" for g in guards if g.outcome is Outcome.FAIL]
    against += [*missing, *unfolded.against]
    changing = [s for s in unfolded.steps if s.subject is not None]
    if not missing and not unfolded.against:
        if changing and all(s.already for s in changing):
            against.append("nothing is left to do: everything is so already")
        elif not changing and unfolded.left_out:
            against.append("no step is left that changes anything")
    if against:
        return Decision.REFUSED, tuple(against)
    unknown = [f"{g.check}: not known: {g.why}" for g in guards if g.outcome is Outcome.UNKNOWN]
    unknown += unfolded.open
    if backend.capabilities is None:
        unknown.insert(0, _ONLY_READ)
    return (Decision.HELD, tuple(unknown)) if unknown else (Decision.READY, ())


def _touches(runbook: Runbook, steps: tuple[PlannedStep, ...]) -> tuple[str, ...]:
    found = {"/".join(s.subject.split("/")[:2]) for s in steps if s.subject is not None and not s.already}
    if runbook.scope is ScopeOf.CLUSTER and found:
        found.add("cluster")
    return tuple(sorted(found))


def _effect(step: PlannedStep) -> str:
    if step.action == "advice.give":
        return f"for a person: {step.params['text']}"
    if step.subject is None:
        return f"{step.title}" + (f": {step.params['worker']}" if step.params.get("worker") else "")
    if step.already:
        return f"{step.subject} is {_word(step.target)} already"
    before = f" from {_word(step.before)}" if step.before is not None else ""
    return f"{step.title}: {step.subject}{before} to {_word(step.target)}"


def _word(value: Value) -> str:
    return (
        {True: "yes", False: "no", None: "?"}.get(value, str(value)) if isinstance(value, bool | None) else str(value)
    )
