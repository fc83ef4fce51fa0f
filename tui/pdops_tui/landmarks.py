"""Find the moments of a recording worth going to, in the background, while it is played."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import partial

from pdops.clock import Clock, WallClock
from pdops.history.ring import Ring
from pdops.model.cluster import Cluster
from pdops.model.frame import Event
from pdops.model.report import Report, Verdict
from pdops_tui.player import Recorded
from pdops_tui.published import JOIN_S, Judge
from pdops_tui.snapshot import Landmark

_MOST = 2000
"""Of each kind; a recording that changes more often is not told moment by moment."""
_LONG_S, _REST = 0.05, 4.0
"""A step that takes longer is followed by so many times its length without one."""
_TOGETHER_S = 1.0
"""Events of one kind that are no further apart are one place to go to."""


class Search:
    """Reads a recording from its start and judges it every five seconds, at most half of the time and in large clusters less.

    `found` and `to_s` may be read from any thread at any time; `trouble` says why it broke off, empty when it did not.

    Args:
        recorded: the recording; it is read a second time, apart from the player.
        judge: makes a Report of a View.
        cluster: under which promise it is judged.
        clock: where durations are read.
    """

    def __init__(self, recorded: Recorded, judge: Judge, cluster: Cluster, clock: Clock | None = None) -> None:
        self.found: tuple[Landmark, ...] = ()
        self.to_s: float | None = None
        self.trouble = ""
        self.done = threading.Event()
        self._stopping = threading.Event()
        self._clock = clock or WallClock()
        self._thread = threading.Thread(
            target=partial(self._run, recorded, judge, cluster), name="pdops-landmarks", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the search; may be called twice."""
        self._stopping.set()
        self._thread.join(JOIN_S)

    def _run(self, recorded: Recorded, judge: Judge, cluster: Cluster) -> None:
        try:
            self._walk(recorded, judge, cluster)
        except Exception as error:  # noqa: BLE001  one that broke off must not be taken for one that found nothing
            self.trouble = f"{type(error).__name__}: {error}"
        finally:
            self.done.set()

    def _walk(self, recorded: Recorded, judge: Judge, cluster: Cluster) -> None:
        # Comes with every check, which nobody needs before the first picture.
        from pdops.diagnose.scan import STEP_S

        ring = Ring(cluster, interval_s=recorded.interval_s)
        times: list[float] = []
        next_s: float | None = None
        said: tuple[Verdict, str] | None = None
        for frame in recorded.iter_frames():
            if self._stopping.is_set():
                return
            began = self._clock.monotonic()
            ring.add(frame)
            times.append(frame.at_s)
            self._add(happened(frame.events, times))
            if next_s is None or frame.at_s >= next_s:
                next_s = frame.at_s + STEP_S
                report = judge(ring.view())
                now = (report.verdict, report.top.cause if report.top is not None else "")
                # The first window fills with unknown; the recording does not change there.
                if now != said and not (said is None and report.verdict is Verdict.UNKNOWN):
                    self._add([Landmark(frame.at_s, "change", _said(report), report.verdict)])
                    said = now
            self.to_s = frame.at_s
            took = self._clock.monotonic() - began
            # What is drawn goes first, and in a large cluster it needs more of the machine.
            self._stopping.wait(took if took < _LONG_S else _REST * took)

    def _add(self, news: Sequence[Landmark]) -> None:
        if news and len(self.found) < 2 * _MOST:
            self.found = tuple(sorted((*self.found, *news), key=lambda mark: mark.t_s))


def happened(events: Iterable[Event], times: Sequence[float]) -> list[Landmark]:
    """Return events as places to go to: the first frame that is not before each. `times` are those of the frames so far.

    A source may learn of an event long after it.
    """
    found = []
    for event in sorted(events, key=lambda e: e.t_s):
        where = event.worker or (f"pool {event.pool}" if event.pool else "")
        place = times[min(bisect_left(times, event.t_s), len(times) - 1)]
        found.append(Landmark(place, "event", f"{event.kind} {where}".strip()))
    return found


def _said(report: Report) -> str:
    top = report.top
    return report.verdict.value if top is None else f"{report.verdict.value}: {top.cause}"


def beyond(moments: Iterable[float], at_s: float, steps: int) -> float | None:
    """Return the moment that many places on (negative: back) from a time, the last one when there are fewer, None for none.

    Moments closer together than a second are one place.
    """
    ordered = sorted(moments, reverse=steps < 0)
    ahead = [m for m in ordered if (m > at_s + 1e-6 if steps > 0 else m < at_s - 1e-6)]
    places: list[float] = []
    for moment in ahead:
        if not places or abs(moment - places[-1]) >= _TOGETHER_S:
            places.append(moment)
    return places[min(abs(steps), len(places)) - 1] if places and steps else None
