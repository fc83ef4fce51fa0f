"""Keep the frames of a recording in order of time when the recorder's clock was set back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from pdops.model.frame import Frame
from pdops.model.times import LAST_S, rfc3339


def onward(frames: Iterable[Frame], interval_s: float, warn: Callable[[str], None]) -> Iterator[Frame]:
    """Yield the frames with times that never fall: after a step back they follow the clock of before, until it is caught up.

    Counters go on over such a step, so what happened before and after it belongs together; a reader finds a moment by its
    time, so no moment may come twice.
    """
    last_s: float | None = None
    by_s = 0.0
    told = False
    for frame in frames:
        if last_s is not None and frame.at_s >= last_s:
            by_s = 0.0
        elif last_s is not None and frame.at_s + by_s < last_s:
            back_s = last_s - by_s - frame.at_s
            by_s = last_s + interval_s - frame.at_s
            if told:
                warn("the recorder's clock was set back more than once")
            else:
                warn(
                    f"the recorder's clock was set back by {back_s:.0f} s at {rfc3339(frame.at_s)}: what follows is shown "
                    "by the clock of before"
                )
            told = True
        last_s = _moved(frame.at_s, by_s)
        yield _later(frame, by_s) if by_s else frame


def _moved(at_s: float, by_s: float) -> float:
    return min(at_s + by_s, LAST_S)


def _later(frame: Frame, by_s: float) -> Frame:
    return replace(
        frame,
        at_s=_moved(frame.at_s, by_s),
        scrapes=tuple(
            replace(
                s,
                at_s=_moved(s.at_s, by_s),
                stamp_s=None if s.stamp_s is None else _moved(s.stamp_s, by_s),
            )
            for s in frame.scrapes
        ),
        events=tuple(replace(e, t_s=_moved(e.t_s, by_s)) for e in frame.events),
        logs=tuple(replace(x, t_s=_moved(x.t_s, by_s)) for x in frame.logs),
        probes=tuple(replace(p, t_s=_moved(p.t_s, by_s)) for p in frame.probes),
    )
