"""A plan: every step with what it sets, what it was before and how it is taken back; the guards with their present values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from pdops.actuate.backend import Params, State, Value
from pdops.runbook.gates import Answer, Ask
from pdops.runbook.model import IfFails, Mode, Risk, ScopeOf

SCHEMA = "pdops/plan/v1"
TTL_S = 600.0
"""A plan older than ten minutes is about another cluster: load moves within minutes, and a stale plan that is carried out
late undoes what was done since."""
VOLATILE = frozenset({"inflight", "serving", "free", "disruptions"})
"""Last parts of subjects that move by themselves; guards look at them again, so they do not make a plan stale."""


class Asked(StrEnum):
    """Who wants it: a person may start what has no diagnosis, an alert may not."""

    PERSON = "person"
    ALERT = "alert"


class Decision(StrEnum):
    """What a plan comes to."""

    READY = "ready"
    """Every guard passes; what is left is approval."""
    HELD = "held"
    """Something is not known that has to be."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """How a step is taken back: an action, its parameters, and the value its subject then has."""

    action: str
    params: Params
    subject: str | None
    target: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """One action with an absolute target.

    `before` is what `subject` must still be when the step begins; `already` says that it is so and nothing is done.
    `skip_when` is asked for up to `settle_s` seconds. `guards` are asked again right before it, besides those of the plan.
    `undo` None comes with the reason in `no_undo`. `once`: never repeated without looking first.
    """

    id: str
    action: str
    title: str
    risk: Risk
    params: Params
    subject: str | None
    before: Value
    target: Value
    already: bool
    once: bool
    undo: Undo | None
    no_undo: str
    guards: tuple[Ask, ...]
    skip_when: tuple[Ask, ...]
    verify: tuple[Ask, ...]
    timeout_s: float
    if_fails: IfFails = "stop"
    settle_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A step that may be missing, and why it is."""

    step: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would be done. Times are Unix seconds; `view_at_s` is in the time of what was judged.

    `recovery` is the way back of a runbook. `touches` are the objects that change, as `worker/ID` or `pool/ROLE`; `topology` says that who is there changes.
    `plan_hash` covers everything but itself and `id`, which is made from it.
    """

    schema: str = SCHEMA
    id: str = ""
    plan_hash: str = ""
    runbook: str
    runbook_version: int
    recovery: bool
    title: str
    cluster: str
    backend: str
    asked: Asked
    mode: Mode
    risk: Risk
    scope: ScopeOf
    touches: tuple[str, ...]
    topology: bool
    parameters: Mapping[str, Value]
    made_at_s: float
    expires_at_s: float
    view_at_s: float
    facts_hash: str
    decision: Decision
    reasons: tuple[str, ...]
    guards: tuple[Answer, ...]
    steps: tuple[PlannedStep, ...]
    left_out: tuple[LeftOut, ...]
    success: tuple[Ask, ...]
    observe_s: float
    cooldown_s: float
    budget_per_hour: int
    min_ready: int
    effects: tuple[str, ...]
    will_not_fix: str
    notes: tuple[str, ...] = field(default=())


def sealed(plan: Plan) -> Plan:
    """Return a plan with its hash and the id that is made from it."""
    digest = plan_hash(plan)
    return replace(plan, plan_hash=digest, id=f"{plan.runbook}-{digest[:12]}")


def plan_hash(plan: Plan) -> str:
    """Return the SHA-256 of a plan's canonical JSON, without the hash itself and the id."""
    content = asdict(plan)
    del content["plan_hash"], content["id"]
    return _digest(content)


def facts_hash(state: State) -> str:
    """Return the SHA-256 of what a plan rests on: all values of a state but those that move by themselves."""
    kept = {s: v.value for s, v in state.values.items() if s.rpartition("/")[2] not in VOLATILE}
    return _digest(kept)


def canonical(content: object) -> str:
    """Return JSON that is the same for the same content: sorted keys, no spaces."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _digest(content: Any) -> str:
    return hashlib.sha256(canonical(content).encode()).hexdigest()
