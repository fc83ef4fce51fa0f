"""A runbook as people write it: triggers, bounded parameters, guards, typed steps. No shell, no templates."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from pdops.model.cluster import Role
from pdops.sources.validate import Strict, Text, refuse

SCHEMA = "pdops/runbook/v1"
MAX_STEPS = 64
MAX_CONDITIONS = 16
_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_ACTION = re.compile(r"[a-z0-9-]{1,31}\.[a-z0-9-]{1,31}")


class Risk(StrEnum):
    """What can go wrong while it runs, mildest first."""

    SAFE = "safe"
    """It adds, looks or waits, and can be taken back at once."""
    DISRUPTIVE = "disruptive"
    """It takes capacity away or restarts something; requests may be slower or be sent again."""
    DANGEROUS = "dangerous"
    """It can lose requests or data."""

    @property
    def rank(self) -> int:
        """Order of risks, mildest 0."""
        return list(Risk).index(self)


class Mode(StrEnum):
    """Who decides that it runs, most careful first."""

    ADVISE = "advise"
    APPROVE = "approve"
    AUTO = "auto"


class ScopeOf(StrEnum):
    """What one run is about."""

    WORKER = "worker"
    POOL = "pool"
    PAIR = "pair"
    CLUSTER = "cluster"


def _id(text: str) -> str:
    if not _ID.fullmatch(text):
        raise refuse(f"not an id: {text[:40]!r}", "use lower-case letters, digits and dashes, at most 63")
    return text


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise refuse(f"not a name: {text[:40]!r}", "use lower-case letters, digits and underscores, at most 63")
    return text


def _action(text: str) -> str:
    if not _ACTION.fullmatch(text):
        raise refuse(
            f"not an action: {text[:60]!r}", "actions are named OBJECT.VERB; `pdops runbook lint --list` lists them"
        )
    return text


def _plain(value: object) -> object:
    # The reader keeps how a number was written; what is planned and hashed is the number alone.
    if isinstance(value, float):
        return float(value) + 0.0
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return value


Id = Annotated[str, AfterValidator(_id)]
Name = Annotated[str, AfterValidator(_name)]
Number = Annotated[Annotated[int, Field(strict=True)] | float, BeforeValidator(_plain)]
Seconds = Annotated[float, BeforeValidator(_plain), Field(ge=0, le=86_400)]
Probability = Annotated[float, BeforeValidator(_plain), Field(ge=0, le=1)]
Paragraph = Annotated[str, Field(min_length=1, max_length=2000)]


class FromParameter(Strict):
    """The value of a parameter of this runbook."""

    param: Name


class Each(Strict):
    """The worker a step with `for_each` is about."""

    each: Literal["worker"]


class New(Strict):
    """The id that the next worker of a role gets."""

    new: Role


Scalar = Annotated[
    Annotated[bool, Field(strict=True)] | Annotated[int, Field(strict=True)] | float | Text, BeforeValidator(_plain)
]
Value = FromParameter | Each | New | Scalar
With = Annotated[dict[str, Value], Field(max_length=16)]


class Condition(Strict):
    """One question with three answers: pass, fail, unknown. `check` names it, `with` says about what."""

    check: Id
    with_: Annotated[With, Field(alias="with", default_factory=dict)]


Conditions = Annotated[tuple[Condition, ...], Field(max_length=MAX_CONDITIONS)]


class Parameter(Strict):
    """Something the person or the alert may choose, within bounds.

    A `worker` of one of `roles` is taken from the diagnosis when it is not given. A `number` or `integer` needs `min`,
    `max` and `default`; a `choice` its `choices` and `default`.
    """

    type: Literal["integer", "number", "choice", "worker"]
    help: Text
    min: Number | None = None
    max: Number | None = None
    default: Scalar | None = None
    choices: tuple[Text, ...] = ()
    roles: tuple[Role, ...] = ()

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        numeric = self.type in ("integer", "number")
        if numeric:
            low, high, start = self.min, self.max, self.default
            if low is None or high is None or isinstance(start, bool | str) or start is None:
                raise refuse("a number needs min, max and default", "give all three")
            if not low <= start <= high:
                raise refuse("min, default and max are not in order", "keep min <= default <= max")
            if self.type == "integer" and not all(float(n).is_integer() for n in (low, high, start)):
                raise refuse("bounds of an integer are not whole", "give whole numbers, or make it a number")
        elif self.min is not None or self.max is not None:
            raise refuse(f"a {self.type} has no min and max", "leave them out")
        if self.type == "choice":
            if self.default not in self.choices:
                raise refuse("the default is not one of the choices", "list the choices, and name one as default")
        elif self.choices:
            raise refuse(f"a {self.type} has no choices", "leave them out, or make it a choice")
        if self.type == "worker" and (self.default is not None or not self.roles):
            raise refuse("a worker needs roles and has no default", "it comes from the diagnosis or from who asks")
        return self


class OnDiagnosis(Strict):
    """Causes or checks of a diagnosis that ask for this runbook, at a confidence (0-1) of at least this."""

    causes: tuple[Id, ...] = ()
    checks: tuple[Text, ...] = ()
    min_confidence: Probability = 0.7


class Triggers(Strict):
    """What may start it. A person may without a diagnosis only where `by_hand` is true.

    With `unanswered` an alert may where no worker answers, as nothing then tells a diagnosis: for a runbook that changes only
    what a backend knows to be away.
    """

    alerts: tuple[Text, ...] = ()
    diagnosis: OnDiagnosis = OnDiagnosis()
    by_hand: bool = False
    unanswered: bool = False


IfFails = Literal["stop", "degrade"]
"""What becomes of a run whose step fails, in the words of `pdops up`'s stages."""


class Step(Strict):
    """One action.

    `for_each` repeats it for every worker of a role; neighbours with the same role are repeated together, worker by
    worker. `optional` leaves it out where the backend does not offer it or too few workers would stay, and its optional
    neighbours of the same `for_each` with it. When all of `skip_when` pass it is not needed; what came before has `settle_s`
    seconds to bring that about, and while one of them is unknown after that the run holds. All of `verify` must pass
    within `timeout_s` seconds. A step that fails is taken back with everything before it, unless `if_fails` is `degrade`,
    itself or as a choice of a parameter: then the run goes on without it and says so at its end.
    """

    id: Id
    action: Annotated[str, AfterValidator(_action)]
    with_: Annotated[With, Field(alias="with", default_factory=dict)]
    for_each: Role | None = None
    optional: bool = False
    skip_when: Conditions = ()
    settle_s: Annotated[float, BeforeValidator(_plain), Field(ge=0, le=3600)] = 0.0
    verify: Conditions = ()
    undo: Literal["auto", "none"] = "auto"
    if_fails: IfFails | FromParameter = "stop"
    timeout_s: Annotated[float, BeforeValidator(_plain), Field(gt=0, le=7200)] = 120.0


def _some(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    # By hand: a bound on the length would be told before what is wrong in the only step.
    if not steps:
        raise refuse("no step is given", "a runbook has at least one")
    return steps


Steps = Annotated[tuple[Step, ...], Field(max_length=MAX_STEPS), AfterValidator(_some)]


class Recovery(Strict):
    """The way back once the cause is gone: a run of its own, with its own guards, planned with `--recovery`."""

    title: Text
    risk: Risk
    guards: Conditions = ()
    steps: Steps
    success: Conditions = ()
    observe_s: Seconds


class Runbook(Strict):
    """A whole runbook.

    After the last step it is watched for `observe_s` seconds, at whose end all of `success` must pass. Another run on the
    same scope waits `cooldown_s`; at most `budget_per_hour` start in an hour. `min_ready` workers of each role are never
    gone below. `will_not_fix` says what it is no remedy for, `notes` what the engines have no switch for.
    """

    schema_: Annotated[Literal["pdops/runbook/v1"], Field(alias="schema")]
    id: Id
    version: Annotated[int, Field(ge=1)]
    title: Text
    risk: Risk
    mode: Mode = Mode.ADVISE
    scope: ScopeOf
    triggers: Triggers
    parameters: Annotated[dict[Name, Parameter], Field(max_length=16, default_factory=dict)]
    guards: Conditions = ()
    steps: Steps
    success: Conditions = ()
    recovery: Recovery | None = None
    observe_s: Seconds
    cooldown_s: Seconds
    budget_per_hour: Annotated[int, Field(ge=1, le=12)]
    min_ready: Annotated[int, Field(ge=0, le=64)] = 1
    will_not_fix: Paragraph
    notes: tuple[Paragraph, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.min_ready == 0 and self.risk is not Risk.DANGEROUS:
            raise refuse("min_ready 0 leaves nobody to serve", "keep one, or say risk: dangerous")
        if self.mode is Mode.AUTO and self.risk is not Risk.SAFE:
            raise refuse(f"a {self.risk} runbook may not be automatic", "use mode: approve")
        for steps in (self.steps, self.recovery.steps if self.recovery is not None else ()):
            if len({s.id for s in steps}) != len(steps):
                raise refuse("two steps have the same id", "give each step an id of its own")
        triggers = self.triggers
        if not (triggers.alerts or triggers.diagnosis.causes or triggers.diagnosis.checks or triggers.by_hand):
            raise refuse("nothing may start it", "name alerts, causes or checks, or say by_hand: true")
        return self

    def recovering(self) -> Runbook | None:
        """Return the way back as a runbook that a person may start, or None when there is none."""
        if self.recovery is None:
            return None
        back = self.recovery
        return self.model_copy(
            update={
                "title": back.title,
                "risk": back.risk,
                "guards": back.guards,
                "steps": back.steps,
                "success": back.success,
                "observe_s": back.observe_s,
                "recovery": None,
                "triggers": self.triggers.model_copy(update={"by_hand": True}),
            }
        )
