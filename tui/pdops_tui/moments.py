"""Where in a recording a person can go, and what they marked."""

from __future__ import annotations

from collections.abc import Iterable
from math import copysign

from pdops.clock import Clock
from pdops.model.cluster import Cluster
from pdops_tui.landmarks import Search, beyond
from pdops_tui.player import Recorded
from pdops_tui.published import Judge
from pdops_tui.snapshot import Command, Landmark

_MOST_UNASKED = 256
"""The search holds a history of its own, some 120 kB a worker; of more workers it begins when somebody asks for a place."""


class Moments:
    """Turns wishes into moments. `said` is why the last one could not be met.

    Args:
        recorded: the recording.
        judge: makes a Report of a View, for the search for changes.
        clock: where durations are read.
    """

    def __init__(self, recorded: Recorded, judge: Judge, clock: Clock) -> None:
        self.marks: tuple[float, ...] = ()
        self.said = ""
        self._recorded, self._judge, self._clock = recorded, judge, clock
        self._search: Search | None = None
        self._put_off: Cluster | None = None

    def search(self, cluster: Cluster) -> None:
        """Look for landmarks under this promise from now on; in a large cluster from when one is asked for."""
        if self._search is None and len(cluster.workers) > _MOST_UNASKED:
            self._put_off = cluster
            return
        self.stop()
        self._search = Search(self._recorded, self._judge, cluster, self._clock)

    def ask(self) -> None:
        """Begin the search that was put off, if one was."""
        if self._put_off is not None and self._search is None:
            self._search = Search(self._recorded, self._judge, self._put_off, self._clock)

    def stop(self) -> None:
        """End the search; may be called twice."""
        if self._search is not None:
            self._search.stop()

    @property
    def landmarks(self) -> tuple[Landmark, ...]:
        """What was found so far, in order of time."""
        return self._search.found if self._search is not None else ()

    @property
    def searched_to_s(self) -> float | None:
        """Unix seconds up to which it was looked, None before the search began."""
        return self._search.to_s if self._search is not None else None

    @property
    def done(self) -> bool:
        """Whether the search has ended, or was never begun."""
        return self._search is None or self._search.done.is_set()

    @property
    def progress(self) -> tuple[bool, float | None]:
        """What changes while the search goes on."""
        return self.done, self.searched_to_s

    def mark(self, at_s: float) -> None:
        """Mark a moment, or take its mark away."""
        rest = [m for m in self.marks if abs(m - at_s) > 1e-6]
        self.marks = tuple(sorted(rest if len(rest) < len(self.marks) else [*rest, at_s]))

    def wanted(self, command: Command, here_s: float) -> float | None:
        """Return the moment a wish asks for (Unix seconds), or None when there is none or it asks for no place."""
        start, end, value = self._recorded.start_s, self._recorded.end_s, command.value
        action = command.action
        if action == "seek":
            return value
        if action == "skip":
            return here_s + value
        if action == "offset":
            # Not `value < 0`: "-0" asks for the end.
            return end + value if copysign(1.0, value) < 0 else start + value
        if action == "fraction":
            return start + min(1.0, max(0.0, value)) * (end - start)
        if action == "to_mark":
            return self._beyond("mark", self.marks, here_s, value)
        if action in ("event", "change"):
            moments = [m.t_s for m in self.landmarks if m.kind == action]
            return self._beyond(action, moments, here_s, value)
        return None

    def _beyond(self, what: str, moments: Iterable[float], here_s: float, steps: float) -> float | None:
        found = beyond(moments, here_s, round(steps))
        if found is None:
            name = {"change": "change of the verdict"}.get(what, what)
            way = "after" if steps > 0 else "before"
            self.said = f"no {name} {way} this"
            if what != "mark" and not self.done:
                self.said = f"looking for the {name} {way} this"
            elif what != "mark" and self._search is not None and self._search.trouble:
                self.said = f"the search for places broke off: {self._search.trouble}; {self.said} as far as it came"
        else:
            self.said = ""
        return found
