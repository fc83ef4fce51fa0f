"""The state of a cluster over the last minutes, as every judge of it sees it: screen, diagnosis, alert, runbook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pdops.model.cluster import PAIR_PREFIX, Cluster, Pair
from pdops.model.frame import Event, LogLine, Probe
from pdops.model.series import HistogramSeries, Series, Window

SeriesKey = tuple[str, str]
"""(scope, signal). Scope: a worker id, `pool:NAME`, `pair:P>D`, `client` or `router`. Signal: its canonical name, with
`.p50 .p95 .p99 .mean .rate` when a source gives only that statistic."""
NEXT_TRY = "; next try in "
"""Stands between the reason and the wait in the error of a page that was not asked at a tick."""
AnySeries = Series | HistogramSeries


class Presence(StrEnum):
    """Whether a worker's data can be trusted to be about now."""

    UP = "up"
    STALE = "stale"
    DOWN = "down"
    NEVER = "never"
    GIVEN = "given"
    """Nobody scraped; a case file or a server-side aggregate supplied what there is."""


@dataclass(frozen=True, slots=True)
class Health:
    """Presence of one worker, the age in seconds of its newest data, and why when it is not up."""

    presence: Presence
    age_s: float | None = None
    why: str | None = None
    since_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something about the data itself that a reader must know, keyed by worker."""

    worker: str
    code: str
    why: str
    fix: str = ""


PAGE, TIMESTAMPS, RECORDING = "page", "timestamps", "recording"
"""Codes of notes that say that data is lost or old: lines of a page, samples with a time of their own, parts of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A snapshot in time, with history behind it.

    `now` is the window that is judged, `base` the one it is compared with, or None when history is too short.
    `start_s` is the oldest moment the view knows of. `relative` is True for a case, whose times are not wall times.
    """

    cluster: Cluster
    at_s: float
    start_s: float
    now: Window
    base: Window | None
    series: Mapping[SeriesKey, tuple[AnySeries, ...]]
    health: Mapping[str, Health] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    logs: tuple[LogLine, ...] = ()
    probes: tuple[Probe, ...] = ()
    facts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    relative: bool = False
    interval_s: float = 1.0

    def pairs(self) -> tuple[Pair, ...]:
        """Return the pairs that have data of their own, sorted."""
        found = {scope for scope, _ in self.series if scope.startswith(PAIR_PREFIX)}
        return tuple(sorted(Pair.parse(scope) for scope in found))
