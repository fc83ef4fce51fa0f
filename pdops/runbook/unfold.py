"""Turn the steps of a runbook into steps with absolute targets, in the order they are done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    dropped: set[tuple[str, str | None]] = set()
    baseline = {role: sum(world.takes_requests(w) is not False for w in world.workers(role)) for role in COUNTED}
    for group, step, worker in _order(runbook, world, done):
        spec = actions()[step.action]
        label = step.id if worker is None else f"{step.id}:{worker}"
        if step.optional and (group[0].id, worker) in dropped:
            continue
        refusal = _refused([s for s in group if s.optional] if step.optional else [step], refusals)
        if refusal is not None and step.optional:
            done.left_out.append(LeftOut(step=label, why=refusal))
            dropped.add((group[0].id, worker))
            continue
        if refusal is not None:
            done.against.append(f"{label}: not offered: {refusal}")
            continue
        try:
            params = spec.params.model_validate(_resolved(step.with_, values, world, worker))
        except _UnnamedError as error:
            done.against.append(f"{label}: nothing names its {error}")
            continue
        except ValidationError as error:
            done.against.append(f"{label}: {error.errors()[0]['msg']}")
            continue
        aim = spec.aim(world, params)
        out = aim.params.get("worker")
        if spec.takes_out and isinstance(out, str) and world.role(out) is None:
            done.open.append(f"{label}: nobody says what role {out} has, so who stays is not known")
        guards = _guards(runbook, spec, aim, world, baseline)
        if not _may(step, label, guards, world, done):
            dropped.add((group[0].id, worker))
            continue
        done.steps.append(_planned(step, label, spec, aim, guards, values, world, worker, done))
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


def _refused(group: Sequence[Step], refusals: Mapping[str, str | None] | None) -> str | None:
    for step in group:
        if refusals is not None and actions()[step.action].needs_backend:
            why = refusals.get(step.action, "the backend does not know it")
            if why is not None:
                return f"{step.action}: {why}"
    return None


def _order(runbook: Runbook, world: World, done: Unfolded) -> Iterator[tuple[Sequence[Step], Step, str | None]]:
    steps = list(runbook.steps)
    while steps:
        role = steps[0].for_each
        if role is None:
            alone = (steps.pop(0),)
            yield alone, alone[0], None
            continue
        group = []
        while steps and steps[0].for_each is role:
            group.append(steps.pop(0))
        workers = world.workers(role)
        if not workers:
            done.left_out += [LeftOut(step=s.id, why=f"there is no {role} worker") for s in group]
        yield from ((group, step, worker) for worker in workers for step in group)


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
            found[key] = world.next_id(value.new)
        else:
            found[key] = value
    return found


def _guards(
    runbook: Runbook, spec: ActionSpec, aim: Aim, world: World, baseline: Mapping[Role, int]
) -> tuple[Ask, ...]:
    worker = str(aim.params.get("worker") or "")
    if not spec.takes_out or world.role(worker) not in COUNTED or _already(spec, aim, world):
        return ()
    return (_min_ready(runbook, worker, world, baseline),)


def _may(step: Step, label: str, guards: tuple[Ask, ...], world: World, done: Unfolded) -> bool:
    """Say whether a step is planned; what forbids a step that must be there is told, and it is shown all the same."""
    for guard in guards:
        outcome, seen, why = floor(world, MinReady.model_validate(dict(guard.params)))
        if outcome is Outcome.FAIL and step.optional:
            done.left_out.append(LeftOut(step=label, why=f"{seen}; {why}"))
            return False
        if outcome is Outcome.FAIL:
            done.against.append(f"{label}: {seen}; {why}")
        elif outcome is Outcome.UNKNOWN:
            done.open.append(f"{label}: {why}")
    return True


def _already(spec: ActionSpec, aim: Aim, world: World) -> bool:
    if aim.subject is None or not spec.compares:
        return False
    before = world.get(aim.subject)
    # Python calls 1 and True the same; a count is no flag.
    return isinstance(before, bool) == isinstance(aim.value, bool) and before is not None and before == aim.value


def _planned(
    step: Step,
    label: str,
    spec: ActionSpec,
    aim: Aim,
    guards: tuple[Ask, ...],
    values: Mapping[str, Value],
    world: World,
    worker: str | None,
    done: Unfolded,
) -> PlannedStep:
    compared = aim.subject if spec.compares else None
    before = world.get(compared) if compared is not None else None
    if compared is not None and before is None:
        done.open.append(f"{label}: nobody says what {compared} is now")
    already = _already(spec, aim, world)
    verify = asks(step.verify, values, world, worker)
    skip_when = asks(step.skip_when, values, world, worker)
    _happen(world, spec, aim)
    undo, no_undo = _undo(step, spec, aim, before, already, world)
    return PlannedStep(
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
        settle_s=step.settle_s,
        verify=verify,
        timeout_s=step.timeout_s,
        if_fails="degrade" if _chosen(step.if_fails, values) == "degrade" else "stop",
    )


def _chosen(value: str | FromParameter, values: Mapping[str, Value]) -> Value:
    return values.get(value.param) if isinstance(value, FromParameter) else value


def _min_ready(runbook: Runbook, worker: str, world: World, baseline: Mapping[Role, int]) -> Ask:
    role = Role(str(world.role(worker)))
    params: dict[str, Value] = {
        "worker": worker, "role": role.value, "least": runbook.min_ready, "baseline": baseline.get(role, 0),
    }  # fmt: skip
    return Ask(check="min-ready", params=params)


def _happen(world: World, spec: ActionSpec, aim: Aim) -> None:
    """Take a step as done and verified."""
    worker = aim.params.get("worker")
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
    try:
        back = inverse.aim(world, inverse.params.model_validate(told))
    except ValidationError:
        return None, f"what it was, {before!r}, cannot be set"
    return Undo(action=inverse.name, params=back.params, subject=back.subject, target=back.value), ""
