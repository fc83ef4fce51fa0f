"""What the command line lends to the screens: things that only rooms above or beside them can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pdops.runbook.make import BackendState
    from pdops.runbook.plan import Plan

Starting = Callable[[], Mapping[str, Any] | None]
"""Read how far a deployment's start is, as `pdops status --json` prints it; None when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What is lent. Whatever is None is said on the screen to be missing.

    Attributes:
        backend: looks at what could be changed, for plans of runbooks; called away from the thread that draws.
        act: carries out exactly the plan it is given and returns what to say; only ever called from the screen that
            shows that plan and its guards, on a key of the person.
        starting: reads a deployment's start.
        copy: takes a text to the clipboard and returns what to say; without it the terminal's own is asked.
        readonly: forbids everything that changes the world, whatever else is lent.
    """

    backend: Callable[[], BackendState | None] | None = None
    act: Callable[[Plan], str] | None = None
    starting: Starting | None = None
    copy: Callable[[str], str] | None = None
    readonly: bool = False
