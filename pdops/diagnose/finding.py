"""What a check says, and how much each piece of evidence weighs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

from pdops.model.report import DoNot, Evidence, Layer, Missing, Scope, Symptom, Verdict

if TYPE_CHECKING:
    from pdops.diagnose.context import Context

DECISIVE = 100.0
"""Likelihood ratio of evidence that means this cause and hardly anything else, such as a counter of the very event."""
STRONG = 20.0
MODERATE = 6.0
WEAK = 2.5

ANYTHING = "*"
"""In `CheckMeta.explains`: every cause of a later tier."""


class Tier(IntEnum):
    """Order of thought: what is judged earlier may explain away what is judged later."""

    DATA = 0
    CORRECTNESS = 1
    PRESENCE = 2
    PAIR = 3
    STAGE = 4
    CAPACITY = 5


class Status(StrEnum):
    """What came of one question."""

    FIRED = "fired"
    CLEAR = "clear"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckMeta:
    """What a check is called, what it may conclude, and where else it shows.

    `id` is FAMILY/NAME, the file is FAMILY_NAME.py beside its page FAMILY_NAME.md. `alert` and `panel` name where the
    same fact is alerted and drawn; a check with neither says why in `no_alert`. `explains` are causes that follow from
    this one and are then not listed as causes of their own. A check with `preflight` is judged by `pdops preflight` and
    not weighed by a diagnosis.
    """

    id: str
    title: str
    causes: tuple[str, ...]
    needs: tuple[str, ...]
    tier: Tier
    explains: tuple[str, ...] = ()
    alert: str | None = None
    panel: str | None = None
    no_alert: str | None = None
    preflight: bool = False


@dataclass(frozen=True, slots=True)
class Weighed:
    """Evidence with its likelihood ratio (> 1) and the group it votes in; a group has one vote, its greatest."""

    evidence: Evidence
    ratio: float
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One answer of a check about one cause.

    FIRED findings become hypotheses, CLEAR ones are ruled out `because`, UNKNOWN ones say what is `missing`. `verdict`
    is what follows if this is the top hypothesis. `cap` limits confidence where the kind of evidence cannot carry more.
    """

    status: Status
    cause: str
    scopes: tuple[Scope, ...] = ()
    layer: Layer | None = None
    for_: tuple[Weighed, ...] = ()
    against: tuple[Weighed, ...] = ()
    missing: tuple[Missing, ...] = ()
    because: str = ""
    symptoms: tuple[Symptom, ...] = ()
    next: tuple[str, ...] = ()
    runbooks: tuple[str, ...] = ()
    do_not: tuple[DoNot, ...] = ()
    verdict: Verdict = Verdict.FAULT
    cap: float = 0.97


@dataclass(frozen=True, slots=True)
class Check:
    """A check: its description and the function that looks."""

    meta: CheckMeta
    run: Callable[[Context], Iterator[Finding]]


def clear(cause: str, because: str, scope: Scope | None = None) -> Finding:
    """Return a finding that rules a cause out, with the number that does."""
    return Finding(status=Status.CLEAR, cause=cause, because=because, scopes=(scope,) if scope else ())


def not_known(cause: str, signal: str, why: str, fix: str = "", scope: Scope | None = None) -> Finding:
    """Return a finding that could not be judged, with what was missing."""
    missing = Missing(signal=signal, why=why, fix=fix, scope=scope)
    return Finding(status=Status.UNKNOWN, cause=cause, missing=(missing,), scopes=(scope,) if scope else ())
