"""Parameters of one run: what was asked for, within bounds, and what the diagnosis points at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pdops.actuate.backend import Value
from pdops.errors import RunbookError
from pdops.model.cluster import Pair
from pdops.model.report import Hypothesis
from pdops.runbook.model import Parameter, Runbook
from pdops.runbook.world import World
from pdops.sources.validate import did_you_mean


@dataclass(frozen=True, slots=True)
class Chosen:
    """Values by parameter, and why some are missing."""

    values: Mapping[str, Value]
    missing: tuple[str, ...]


def checked(runbook: Runbook, asked: Mapping[str, Value]) -> dict[str, Value]:
    """Return what was asked for as values of their kinds; whether a worker exists is not asked yet.

    Raises:
        RunbookError: a value is out of bounds, of the wrong kind, or for a parameter that does not exist.
    """
    for name in asked:
        if name not in runbook.parameters:
            hint = did_you_mean(name, runbook.parameters) if runbook.parameters else "leave it out"
            raise RunbookError("no such parameter", where=f"{runbook.id} {name}", hint=hint)
    return {name: _checked(runbook, name, runbook.parameters[name], value) for name, value in asked.items()}


def choose(runbook: Runbook, asked: Mapping[str, Value], found: tuple[Hypothesis, ...], world: World) -> Chosen:
    """Return the parameters of a run.

    A worker that is not asked for is the only one of a role in the scopes of the first matching hypothesis, in the order
    of the parameter's roles, else the only one there is. Several or none are no choice: an empty selection is never everybody.

    Raises:
        RunbookError: as `checked`.
    """
    values = checked(runbook, asked)
    missing: list[str] = []
    for name, parameter in runbook.parameters.items():
        if name not in asked and parameter.type != "worker":
            values[name] = parameter.default
        if parameter.type != "worker":
            continue
        if name in values:
            role = world.role(str(values[name]))
            if role is None:
                missing.append(f"{name}: no worker {values[name]!r} is known")
            elif role not in parameter.roles:
                missing.append(f"{name}: {values[name]} is a {role} worker, and this is for {_roles(parameter)}")
            continue
        named = _named(parameter, found, world)
        if len(named) == 1:
            values[name] = named[0]
        elif named:
            missing.append(f"{name}: several are meant, {', '.join(named)}; choose one with --set {name}=ID")
        else:
            missing.append(f"{name}: nothing says which {_roles(parameter)} worker; name it with --set {name}=ID")
    return Chosen(values, tuple(missing))


def _named(parameter: Parameter, found: tuple[Hypothesis, ...], world: World) -> tuple[str, ...]:
    scopes = found[0].scopes if found else ()
    pairs = [Pair.parse(s.id) for s in scopes if s.kind == "pair"]
    # A worker that is named by itself is more surely the one than either end of a pair.
    for named in ([s.id for s in scopes if s.kind == "worker"], [w for p in pairs for w in (p.src, p.dst)]):
        by_role = {r: tuple(dict.fromkeys(w for w in named if world.role(w) == r)) for r in parameter.roles}
        # The end that all pairs share is the guilty one, first of a role that has others to do its work.
        for enough in (2, 1):
            for role, meant in by_role.items():
                if len(meant) == 1 and len(world.workers(role)) >= enough:
                    return meant
        if any(by_role.values()):
            return tuple(w for meant in by_role.values() for w in meant)
    there = [w for role in parameter.roles for w in world.workers(role)]
    return tuple(there) if len(there) == 1 else ()


def _checked(runbook: Runbook, name: str, parameter: Parameter, value: Value) -> Value:
    where = f"{runbook.id} {name}"
    if parameter.type == "worker":
        return str(value)
    if parameter.type == "choice":
        if value not in parameter.choices:
            hint = did_you_mean(str(value), parameter.choices, label="choose from")
            raise RunbookError("not one of the choices", where=where, why=repr(value)[:60], hint=hint)
        return value
    low, high = parameter.min, parameter.max
    assert low is not None
    assert high is not None
    number = _number(value)
    bounds = f"from {low:g} to {high:g}"
    if number is None or (parameter.type == "integer" and not float(number).is_integer()):
        raise RunbookError(
            "not a whole number" if parameter.type == "integer" else "not a number",
            where=where,
            why=repr(value)[:60],
            hint=f"give one {bounds}",
        )
    if not low <= number <= high:
        raise RunbookError("out of bounds", where=where, why=repr(value)[:60], hint=f"give one {bounds}")
    return int(number) if parameter.type == "integer" else float(number)


def _number(value: Value) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if abs(number) < 1e15 else None


def _roles(parameter: Parameter) -> str:
    return " or ".join(parameter.roles)
