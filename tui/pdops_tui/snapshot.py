"""What a feed hands to the screen, and what the screen may ask of a feed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from pdops.errors import PdopsError
from pdops.model.report import Report
from pdops.model.view import View

Action = Literal["play", "pause", "toggle", "step", "seek", "skip", "speed", "faster", "slower"]


@dataclass(frozen=True, slots=True)
class Command:
    """One wish about a replay.

    `value` is frames for `step` (negative goes back), Unix seconds for `seek`, seconds from here for `skip`, a
    factor for `speed`; else it is ignored.
    """

    action: Action
    value: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a replay stands. `index` counts frames from 1; `total` is None until the end was seen, `end_s` when it is not
    known.

    `gap_s` is the time without data just before this frame, None when there was none.
    """

    index: int
    start_s: float
    at_s: float
    total: int | None = None
    end_s: float | None = None
    paused: bool = True
    speed: float = 1.0
    ended: bool = False
    gap_s: float | None = None
    seeking: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One View to draw. `seq` grows with every new one; `position` is None for a live source.

    `report` is the newest there is and may be older than the view; None when nothing was judged yet. `trouble` says
    what is wrong with the feed itself.
    """

    seq: int
    view: View
    report: Report | None
    source: str
    position: Position | None = None
    trouble: str | None = None


class Feed(Protocol):
    """Gives the newest state without ever making the caller wait."""

    def start(self) -> None:
        """Begin to look at the source."""
        ...

    def stop(self) -> None:
        """End, and return when everything that was started has ended; may be called twice."""
        ...

    def latest(self) -> Snapshot | None:
        """Return the newest state, or None before the first one."""
        ...

    def control(self, command: Command) -> None:
        """Take a wish about a replay; a live feed ignores it."""
        ...

    @property
    def failure(self) -> PdopsError | None:
        """Why the feed ended by itself, or None."""
        ...
