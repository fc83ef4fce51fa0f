"""Turn the steps of a runbook into steps with absolute targets, in the order they are done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from pdops.actuate.backend import Value
from pdops.model.cluster import Role
from pdops.runbook.actions import ActionSpec, Aim, actions
from pdops.runbook.gates import Ask, Outcome
from pdops.runbook.model import Condition, Each, FromParameter, New, Runbook, Step, With
from pdops.runbook.plan import LeftOut, PlannedStep, Undo
from pdops.runbook.questions_state import MinReady, floor
from pdops.runbook.world import COUNTED, World


@dataclass(slots=True)
class Unfolded:
    """The steps, those left out, and what stands in their way: `against` forbids, `open` is not known."""

    steps: list[PlannedStep] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    against: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)


class _UnnamedError(Exception):
    """A step is about something that nothing names."""


def unfold(
    runbook: Runbook, values: Mapping[str, Value], world: World, refusals: Mapping[str, str | None] | None
) -> Unfolded:
    """Return what a runbook comes to in a world, which is changed step by step.

    `refusals` say for each action why the backend does not offer it, None when it does; without a backend there are none.
    """
    done = Unfolded()
    baseline = {role: sum(world.takes_requests(w) is not False for w in world.workers(role)) for role in COUNTED}
    for step, worker in _order(runbook, world, done):
        spec = actions()[step.action]
        refusal = refusals.get(step.action, "the backend does not know it") if refusals is not None else None
        label = step.id if worker is None else f"{step.id}:{worker}"
        if spec.needs_backend and refusal is not None:
            if step.optional:
                done.left_out.append(LeftOut(step=label, why=f"{step.action}: {refusal}"))
            else:
                done.against.append(f"{label}: {step.action} is not offered: {refusal}")
            continue
        try:
            params = spec.params.model_validate(_resolved(step.with_, values, world, worker))
        except _UnnamedError as error:
            done.against.append(f"{label}: nothing names its {error}")
            continue
        except ValidationError as error:
            done.against.append(f"{label}: {error.errors()[0]['msg']}")
            continue
        _add(runbook, step, label, spec, spec.aim(world, params), baseline, values, world, worker, done)
    return done


def asks(
    conditions: tuple[Condition, ...], values: Mapping[str, Value], world: World, worker: str | None = None
) -> tuple[Ask, ...]:
    """Return conditions with every reference replaced; those about a parameter that has no value are left out."""
    found = []
    for condition in conditions:
        try:
            found.append(Ask(check=condition.check, params=_resolved(condition.with_, values, world, worker)))
        except _UnnamedError:
            continue
    return tuple(found)


def _order(runbook: Runbook, world: World, done: Unfolded) -> Iterator[tuple[Step, str | None]]:
    steps = list(runbook.steps)
    while steps:
        role = steps[0].for_each
        if role is None:
            yield steps.pop(0), None
            continue
        group = []
        while steps and steps[0].for_each is role:
            group.append(steps.pop(0))
        workers = world.workers(role)
        if not workers:
            done.left_out += [LeftOut(step=s.id, why=f"there is no {role} worker") for s in group]
        yield from ((step, worker) for worker in workers for step in group)


def _resolved(given: With, values: Mapping[str, Value], world: World, worker: str | None) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for key, value in given.items():
        if isinstance(value, FromParameter):
            if values.get(value.param) is None:
                raise _UnnamedError(value.param)
            found[key] = values[value.param]
        elif isinstance(value, Each):
            if worker is None:
                raise _UnnamedError("worker")
            found[key] = worker
        elif isinstance(value, New):
            found[key] = _new(world, value.new)
        else:
            found[key] = value
    return found


def _new(world: World, role: Role) -> str:
    return world.next_id(role)


def _add(
    runbook: Runbook,
    step: Step,
    label: str,
    spec: ActionSpec,
    aim: Aim,
    baseline: Mapping[Role, int],
    values: Mapping[str, Value],
    world: World,
    worker: str | None,
    done: Unfolded,
) -> None:
    before = world.get(aim.subject) if aim.subject is not None and spec.compares else None
    already = aim.subject is not None and spec.compares and before is not None and before == aim.value
    if aim.subject is not None and spec.compares and before is None:
        done.open.append(f"{label}: nobody says what {aim.subject} is now")
    guards: tuple[Ask, ...] = ()
    subject = str(aim.params.get("worker") or "")
    if spec.takes_out and not already and world.role(subject) in COUNTED:
        guards = (_min_ready(runbook, subject, world, baseline),)
        outcome, seen, why = floor(world, MinReady.model_validate(dict(guards[0].params)))
        if outcome is Outcome.FAIL:
            done.against.append(f"{label}: {seen}; {why}")
        elif outcome is Outcome.UNKNOWN:
            done.open.append(f"{label}: {why}")
    verify = asks(step.verify, values, world, worker)
    skip_when = asks(step.skip_when, values, world, worker)
    _happen(world, spec, aim, subject)
    undo, no_undo = _undo(step, spec, aim, before, already, world)
    done.steps.append(
        PlannedStep(
            id=label,
            action=spec.name,
            title=spec.title,
            risk=spec.risk,
            params=aim.params,
            subject=aim.subject,
            before=before,
            target=aim.value,
            already=already,
            once=spec.once,
            undo=undo,
            no_undo=no_undo,
            guards=guards,
            skip_when=skip_when,
            verify=verify,
            timeout_s=step.timeout_s,
        )
    )


def _min_ready(runbook: Runbook, worker: str, world: World, baseline: Mapping[Role, int]) -> Ask:
    role = Role(str(world.role(worker)))
    params: dict[str, Value] = {
        "worker": worker, "role": role.value, "least": runbook.min_ready, "baseline": baseline.get(role, 0),
    }  # fmt: skip
    return Ask(check="min-ready", params=params)


def _happen(world: World, spec: ActionSpec, aim: Aim, worker: str) -> None:
    """Take a step as done and verified."""
    if aim.subject is not None:
        world.put(aim.subject, aim.value)
    here = f"worker/{worker}"
    if spec.name == "pool.scale-out":
        for part, value in (("role", aim.params["role"]), ("process", "running"), ("serving", True), ("routed", False)):
            world.put(f"{here}/{part}", value)
        world.put(f"{here}/cordoned", False)
    elif spec.name == "pool.scale-in":
        world.put(f"{here}/process", "absent")
    elif spec.name in ("worker.start", "worker.restart", "worker.reconfigure"):
        world.put(f"{here}/process", "running")
        world.put(f"{here}/serving", True)


def _undo(
    step: Step, spec: ActionSpec, aim: Aim, before: Value, already: bool, world: World
) -> tuple[Undo | None, str]:
    if aim.subject is None:
        return None, "it changes nothing"
    if already:
        return None, "it is so already"
    if step.undo == "none":
        return None, "the runbook leaves it"
    if spec.inverse is None:
        return None, "it cannot be taken back" if spec.compares else "it only waits"
    inverse = actions()[spec.inverse]
    told: dict[str, Value] = {k: v for k, v in aim.params.items() if k in inverse.params.model_fields}
    if inverse is spec:
        if before is None:
            return None, "nobody says what it was"
        told["value"] = before
    back = inverse.aim(world, inverse.params.model_validate(told))
    return Undo(action=inverse.name, params=back.params, subject=back.subject, target=back.value), ""
