"""What a diagnosis says. Fields carry the names of the published JSON; see `pdops schema diagnosis`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pdops.model.series import Reading


class Verdict(StrEnum):
    """The one-word answer."""

    FAULT = "fault"
    OVERLOAD = "overload"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"


class Layer(StrEnum):
    """Where a cause lives."""

    PREFILL = "prefill"
    DECODE = "decode"
    TRANSFER = "transfer"
    KVSTORE = "kvstore"
    NETWORK = "network"
    ROUTER = "router"
    CAPACITY = "capacity"
    CLIENT = "client"
    ENGINE = "engine"
    CONFIG = "config"
    STARTUP = "startup"


class Symptom(StrEnum):
    """What the person on call sees first."""

    TTFT = "ttft-high-itl-normal"
    ITL = "itl-high-ttft-normal"
    ERRORS = "errors-or-timeouts"
    GOODPUT = "goodput-falling-points-normal"
    SKEW = "load-skew"
    WRONG_ANSWERS = "wrong-answers"
    NO_DATA = "no-data"
    STARTUP = "startup"


ScopeKind = Literal["worker", "pool", "pair", "node", "zone", "global"]


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """What a statement is about; encoded as `{kind: id}`."""

    kind: ScopeKind
    id: str

    def __str__(self) -> str:
        return self.id if self.kind in ("worker", "pair") else f"{self.kind} {self.id}"


@dataclass(frozen=True, slots=True)
class Bound:
    """A number that is only a bound: the truth is at least (`ge`) or at most (`le`) `value`."""

    value: float
    bound: Literal["ge", "le"]


Observed = float | str | Bound | None
Basis = Literal["peer", "history", "physics", "config", "log", "probe"]


def observed(reading: Reading) -> Observed:
    """Return a reading as it is published: number, bound, or None."""
    if reading.value is None:
        return None
    if reading.bound is not None:
        return Bound(reading.value, reading.bound)
    return reading.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One thing seen, beside what was expected and where that expectation comes from."""

    signal: str
    scope: Scope | None
    observed: Observed
    expected: Observed
    basis: Basis
    unit: str = ""
    window_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Data that is not there: why, and how to get it."""

    signal: str
    why: str
    fix: str = ""
    scope: Scope | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DoNot:
    """A popular action that would make it worse."""

    action: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TtftStage:
    """One part of TTFT: mean `seconds`, its `share` of the sum (0-1), or why it is not known."""

    stage: str
    seconds: float | Bound | None
    share: float | None
    why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One question on the way from symptom to layer, and the answer."""

    question: str
    answer: str
    signals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One cause, how sure (probability 0-1), on what evidence, and what to do."""

    fault: int
    cause: str
    check: str
    layer: Layer
    confidence: float
    scopes: tuple[Scope, ...]
    for_: tuple[Evidence, ...]
    against: tuple[Evidence, ...] = ()
    missing: tuple[Missing, ...] = ()
    next: tuple[str, ...] = ()
    runbooks: tuple[str, ...] = ()
    do_not: tuple[DoNot, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledOut:
    """A cause that was weighed and does not fit, with the number that says so."""

    cause: str
    because: str
    scope: Scope | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole answer. Hypotheses come by confidence, at most five."""

    cluster: str
    at: str | None
    at_s: float
    verdict: Verdict
    symptoms: tuple[Symptom, ...] = ()
    ttft: tuple[TtftStage, ...] = ()
    hops: tuple[Hop, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    missing: tuple[Missing, ...] = ()

    @property
    def top(self) -> Hypothesis | None:
        """The first hypothesis, or None."""
        return self.hypotheses[0] if self.hypotheses else None
