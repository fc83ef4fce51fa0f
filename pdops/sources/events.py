"""Notice what happened to a worker from what its pages say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from pdops.catalog.load import catalog
from pdops.catalog.names import canonical_name
from pdops.model.cluster import Cluster
from pdops.model.frame import Event, EventKind, Layout, Scrape, Values
from pdops.model.view import NEXT_TRY
from pdops.sources.detect import SIDE_ENGINES

DOWN_INTERVALS = 3.0
NEVER_S = 10.0
"""Who never answered is down after two whole exchanges of five seconds: an address may be wrong, a process still starting."""
START_SLACK_S = 1.0
"""A start time that moves by less is the same start, told with another rounding."""
RESET_FAMILIES = 3
"""Families that must fall at once: one alone also falls when a process corrects itself."""
_START = "process_start_time_seconds"
_MAX_LAYOUTS = 64


@dataclass(frozen=True, slots=True, eq=False)
class _Marks:
    """Where a layout's counters and start time stand, and which family each counter belongs to."""

    counters: np.ndarray
    series: tuple[str, ...]
    families: tuple[str, ...]
    start: int | None


@dataclass(slots=True)
class _Seen:
    """What one endpoint said last, full and partial pages apart."""

    engine: str = ""
    start_s: float | None = None
    last: dict[bool, tuple[_Marks, Values]] = field(default_factory=dict)
    answered_s: float | None = None
    failing_since_s: float | None = None


class EventDetector:
    """Derives restarts and downs from scrapes, fed in order of time.

    A restart is a process start time that moved by more than a second, or at least three counter families that fell
    at once and are no fewer than half of those that had counted; histogram sums prove nothing, since a clock that
    steps back lowers them. A worker is down when none of its engine's pages answered for three intervals, said once
    with the reason, at the time of the first failure; one that never answered at all, when that has lasted ten seconds
    too. Pages that stand beside an engine do not keep it up.
    """

    def __init__(self, cluster: Cluster, *, interval_s: float = 1.0) -> None:
        self._silence_s = DOWN_INTERVALS * interval_s
        self._endpoints: dict[str, dict[str, _Seen]] = {w.id: {} for w in cluster.workers}
        self._down: set[str] = set()
        self._marks: dict[tuple[str, Layout], _Marks] = {}

    def feed(self, scrape: Scrape, *, answered: bool = False) -> list[Event]:
        """Take in one scrape and return what it shows to have happened.

        Args:
            scrape: the newest of its endpoint.
            answered: the target did answer although the page is of no use.
        """
        seen = self._endpoints.setdefault(scrape.worker, {}).setdefault(scrape.endpoint, _Seen())
        if scrape.engine != seen.engine:
            # Another engine's counters say nothing about this one's.
            seen.engine, seen.start_s = scrape.engine, None
            seen.last.clear()
        if scrape.layout is None or scrape.values is None:
            return self._silent(scrape, seen, answered=answered)
        before_s = seen.answered_s
        seen.answered_s, seen.failing_since_s = scrape.at_s, None
        if self._counts(scrape.worker, seen):
            self._down.discard(scrape.worker)
        event = self._restart(scrape, scrape.layout, scrape.values, seen, before_s)
        return [] if event is None else [event]

    def _silent(self, scrape: Scrape, seen: _Seen, *, answered: bool) -> list[Event]:
        if answered:
            seen.answered_s, seen.failing_since_s = scrape.at_s, None
            return []
        if seen.failing_since_s is None:
            seen.failing_since_s = scrape.at_s
        if scrape.worker in self._down or not self._counts(scrape.worker, seen):
            return []
        engines = [e for e in self._endpoints[scrape.worker].values() if self._counts(scrape.worker, e)]
        heard = any(e.answered_s is not None for e in engines)
        patience_s = self._silence_s if heard else max(self._silence_s, NEVER_S)
        since = []
        for engine in engines:
            if engine.failing_since_s is None or scrape.at_s - engine.failing_since_s < patience_s:
                return []
            since.append(engine.failing_since_s)
        self._down.add(scrape.worker)
        why = (scrape.error or "no answer").partition(NEXT_TRY)[0]
        return [Event(t_s=max(since), kind=EventKind.DOWN, worker=scrape.worker, detail=why)]

    def _counts(self, worker: str, seen: _Seen) -> bool:
        """Whether this endpoint's answer means that the worker serves."""
        if seen.engine not in SIDE_ENGINES:
            return True
        return all(other.engine in SIDE_ENGINES for other in self._endpoints[worker].values())

    def _restart(
        self, scrape: Scrape, layout: Layout, values: Values, seen: _Seen, before_s: float | None
    ) -> Event | None:
        marks = self._marked(scrape.engine, layout)
        start_s = None if marks.start is None else float(values[marks.start])
        if start_s is not None and not np.isfinite(start_s):
            start_s = None
        counters = values[marks.counters]
        why = None
        if start_s is not None and seen.start_s is not None and abs(start_s - seen.start_s) > START_SLACK_S:
            why = "process start time changed"
        elif scrape.full in seen.last:
            fallen = _fallen(*seen.last[scrape.full], marks, counters)
            if fallen:
                why = f"{len(fallen)} counters fell at once, such as {min(fallen)}"
        if why is not None:
            seen.last.clear()
        seen.last[scrape.full] = (marks, counters)
        seen.start_s = start_s if start_s is not None else (None if why is not None else seen.start_s)
        if why is None or scrape.engine in SIDE_ENGINES - {"nixl"}:
            return None
        at_s = scrape.at_s
        if start_s is not None and before_s is not None and before_s < start_s < at_s:
            at_s = start_s
        return Event(t_s=at_s, kind=EventKind.RESTART, worker=scrape.worker, detail=why)

    def _marked(self, engine: str, layout: Layout) -> _Marks:
        key = (engine, layout)
        marks = self._marks.get(key)
        if marks is None:
            if len(self._marks) >= _MAX_LAYOUTS:
                self._marks.clear()
            marks = self._marks[key] = _mark(engine, layout)
        return marks


@cache
def _counter_names(engine: str) -> Mapping[str, str]:
    """Return family by sample name for everything an engine only ever counts up."""
    engines = (engine, "pdops_plugin") if engine == "vllm" else (engine,)
    names: dict[str, str] = {}
    for signal in catalog().signals.values():
        for spec in (s for name in engines for s in signal.sources.get(name, ())):
            if spec.metric is None:
                continue
            if spec.kind == "counter":
                names[spec.metric] = spec.metric
            elif spec.kind in ("histogram", "summary"):
                names[spec.metric + "_count"] = spec.metric
    return names


def _mark(engine: str, layout: Layout) -> _Marks:
    known = _counter_names(engine)
    counters: list[int] = []
    families: list[str] = []
    start = None
    for index, series in enumerate(layout.series):
        name = canonical_name(series.partition("{")[0].strip())[0]
        if name == _START:
            start = index
        elif name in known:
            counters.append(index)
            families.append(known[name])
    return _Marks(np.array(counters, dtype=np.intp), tuple(layout.series[i] for i in counters), tuple(families), start)


def _fallen(before: _Marks, old: Values, now: _Marks, new: Values) -> set[str]:
    """Return the families that fell when that looks like a reset, else nothing.

    Only series on both pages are compared: a sum over ranks also falls when a rank goes away.
    """
    if before is now:
        if not (new < old).any():
            return set()
        pairs = list(zip(now.families, old, new, strict=True))
    else:
        was_at = dict(zip(before.series, old, strict=True))
        same = zip(now.families, now.series, new, strict=True)
        pairs = [(family, was_at[series], value) for family, series, value in same if series in was_at]
    fell: set[str] = set()
    counted: set[str] = set()
    for family, was, value in pairs:
        if was > 0:
            counted.add(family)
        if value < was:
            fell.add(family)
    return fell if len(fell) >= RESET_FAMILIES and 2 * len(fell) >= len(counted) else set()
