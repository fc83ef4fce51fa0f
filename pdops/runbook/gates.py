"""Questions that guard a runbook or verify a step. Each has three answers, and unknown never passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pdops.actuate.backend import State, Value
from pdops.model.report import Report
from pdops.model.view import View
from pdops.sources.validate import Strict


class Outcome(StrEnum):
    """What came of a question."""

    PASS = "pass"  # noqa: S105  no password
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything a question may look at. Probes older than `since_s` (in the View's time) say nothing about a step."""

    view: View
    report: Report
    state: State
    since_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A question with its references replaced by values."""

    check: str
    params: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a question came to: `observed` in words, and why when it did not pass."""

    check: str
    params: Mapping[str, Value]
    outcome: Outcome
    observed: str
    why: str = ""


Said = tuple[Outcome, str, str]
"""Outcome, what was observed, why it did not pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question of the closed list: what it is told and how it is answered.

    As a guard it is asked again before every effect when `again`; others are about the moment the run begins, as its own
    steps change their answer.
    """

    name: str
    title: str
    params: type[Strict]
    answer: Callable[[Facts, Any], Said]
    again: bool = False


def passed(observed: str) -> Said:
    """Return the answer of a question that passed."""
    return Outcome.PASS, observed, ""


def failed(observed: str, why: str) -> Said:
    """Return the answer of a question that did not pass."""
    return Outcome.FAIL, observed, why


def unsure(why: str) -> Said:
    """Return the answer of a question that nobody can answer now."""
    return Outcome.UNKNOWN, "not known", why


def ask(what: Ask, facts: Facts) -> Answer:
    """Answer one question.

    Raises:
        KeyError: no such question; loading a runbook refuses those.
        pydantic.ValidationError: its parameters do not fit; loading refuses those too.
    """
    from pdops.runbook.questions import QUESTIONS

    question = QUESTIONS[what.check]
    outcome, observed, why = question.answer(facts, question.params.model_validate(dict(what.params)))
    return Answer(check=what.check, params=what.params, outcome=outcome, observed=observed, why=why)


def again(guards: Iterable[Answer]) -> tuple[Ask, ...]:
    """Return the guards of a plan that must hold before every effect, not only when the run begins."""
    from pdops.runbook.questions import QUESTIONS

    return tuple(Ask(check=g.check, params=g.params) for g in guards if QUESTIONS[g.check].again)


def together(outcomes: Iterable[Outcome]) -> Outcome:
    """Return what several answers come to: fail before unknown before pass; none at all pass."""
    found = set(outcomes)
    for worst in (Outcome.FAIL, Outcome.UNKNOWN):
        if worst in found:
            return worst
    return Outcome.PASS
