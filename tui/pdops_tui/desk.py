"""What the command line lends to the screens: things that only rooms above or beside them can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pdops.model.report import Hypothesis
from pdops.model.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question of a plan's guards: the answer is True, False or None for not known, and why."""

    text: str
    answer: bool | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A plan as it can be shown before anything is done. `refused` says why nothing can be planned or carried out.

    `steps` are (title, what it does, how it is undone); `act` carries the plan out, None when that is not possible from
    here, and returns what to say.
    """

    runbook: str
    title: str
    risk: str = ""
    steps: tuple[tuple[str, str, str], ...] = ()
    guards: tuple[Question, ...] = ()
    notes: tuple[str, ...] = ()
    refused: str = ""
    command: str = ""
    act: Callable[[], str] | None = field(default=None, compare=False)


Planner = Callable[[str, Hypothesis | None, View], Preview]
"""Make the preview of a runbook for a hypothesis; touches nothing."""
Starting = Callable[[], Mapping[str, Any] | None]
"""Read how far a deployment's start is, as `pdops status --json` prints it; None when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What is lent. Whatever is None is said on the screen to be missing.

    `readonly` forbids everything that changes the world, whatever else is lent.
    """

    plan: Planner | None = None
    starting: Starting | None = None
    copy: Callable[[str], str] | None = None
    readonly: bool = False
