"""What a feed hands to the screen, and what the screen may ask of a feed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from pdops.errors import PdopsError
from pdops.model.cluster import Slo
from pdops.model.report import Report, Verdict
from pdops.model.view import View

Action = Literal[
    "play",
    "pause",
    "toggle",
    "step",
    "seek",
    "skip",
    "speed",
    "faster",
    "slower",
    "offset",
    "fraction",
    "event",
    "change",
    "mark",
    "to_mark",
    "record",
    "stop_recording",
    "promise",
    "source",
    "link",
]


@dataclass(frozen=True, slots=True)
class Command:
    """One wish about a feed.

    `value` is frames for `step` (negative goes back), Unix seconds for `seek`, seconds from here for `skip`, seconds from
    the start for `offset` (negative: from the end), 0-1 for `fraction`, a factor for `speed`, which one from here (1 or -1)
    for `event`, `change` (of the verdict or the first cause) and `to_mark`, the number of a source for `source`; else it is
    ignored. `text` is the path for `record`. `slo` is the promise to judge by for `promise`, None for the cluster's own.
    """

    action: Action
    value: float = 0.0
    text: str = ""
    slo: Slo | None = None


@dataclass(frozen=True, slots=True)
class Landmark:
    """A moment of a recording worth going to (Unix seconds): an event, or a change of the verdict or of the first cause."""

    t_s: float
    kind: Literal["event", "change"]
    text: str
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a replay stands. `index` counts frames from 1; `total` is None until the end was seen, `end_s` when it is not
    known.

    `gap_s` is the time without data just before this frame, None when there was none. `landmarks` are those found up to
    `searched_to_s`, which is None before the search began; `marks` are moments the person marked, in order of time.
    `said` answers the last wish when it could not be met.
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
    marks: tuple[float, ...] = ()
    landmarks: tuple[Landmark, ...] = ()
    searched_to_s: float | None = None
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taping:
    """A recording that is being written, or was. Times are Unix seconds of frames; `lost` counts frames the disk was too slow
    for; `trouble` says why it ended by itself.
    """

    path: str
    from_s: float | None = None
    to_s: float | None = None
    frames: int = 0
    size_bytes: int = 0
    lost: int = 0
    running: bool = True
    trouble: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One View to draw. `seq` grows with every new one; `position` is None for a live source.

    `report` is the newest there is and may be older than the view; None when nothing was judged yet. `trouble` says
    what is wrong with the feed itself. `asking` says that no worker had time to answer yet, so that nothing is known of any.
    `taping` is the recording being written, or the last one. `slo` is the promise that
    stands in for the cluster's own in this session. Of several sources `number` says which one this is (from 0), `sources`
    how they are called, `beside` holds the newest of each that has any, and `linked` whether they are replayed together.
    """

    seq: int
    view: View
    report: Report | None
    source: str
    position: Position | None = None
    trouble: str | None = None
    asking: bool = False
    taping: Taping | None = None
    slo: Slo | None = None
    number: int = 0
    sources: tuple[str, ...] = ()
    linked: bool = True
    beside: tuple[Snapshot, ...] = ()


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
        """Take a wish; a feed ignores what it cannot do."""
        ...

    @property
    def failure(self) -> PdopsError | None:
        """Why the feed ended by itself, or None."""
        ...
