"""What the exporter knows of a cluster: the newest page of every worker, its growth since then, and the diagnosis."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from pdops.catalog.binding import Binding, Column, bind
from pdops.diagnose.engine import diagnose
from pdops.diagnose.preflight import Outcome, overall
from pdops.diagnose.preflight_run import run_preflight
from pdops.history.readings import Readings
from pdops.history.ring import Ring
from pdops.model.cluster import Cluster, Worker
from pdops.model.frame import NOT_ASKED, EventKind, Frame, Layout, Probe, Scrape, Values
from pdops.model.report import Report
from pdops.model.view import Presence, View
from pdops_exporters.counters import Counters

_MAX_LAYOUTS = 8
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """One page of one worker in canonical columns: `now` as it is, `grown` since this process first saw it."""

    worker: Worker
    scrape: Scrape
    columns: tuple[Column, ...]
    now: Values
    grown: Values
    derived: dict[str, Any] = field(default_factory=dict)
    """What was derived from the columns; kept from page to page while these stay the same."""

    def derive(self, what: str, make: Callable[[], T]) -> T:
        """Return what is made of the columns, made once for all pages that have them."""
        if what not in self.derived:
            self.derived[what] = make()
        found: T = self.derived[what]
        return found


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Everything collectors look at, of one moment. Pages of workers that do not answer are not in it."""

    view: View
    report: Report
    pages: tuple[Page, ...]
    restarts: dict[str, int]
    probes: tuple[Probe, ...]
    frames: int
    took_s: float
    """Seconds the last frame took to be taken in."""
    preflight: Mapping[str, Outcome] = field(default_factory=dict)
    """What each preflight check came to; empty while nothing of the configuration is known."""

    @cached_property
    def ask(self) -> Readings:
        """Readings over the view."""
        return Readings(self.view)

    @cached_property
    def _made(self) -> dict[str, Any]:
        return {}

    def once(self, what: str, make: Callable[[], T]) -> T:
        """Return what several subjects need of this snapshot, made once."""
        if what not in self._made:
            self._made[what] = make()
        found: T = self._made[what]
        return found

    @property
    def cluster(self) -> Cluster:
        """The cluster that is watched."""
        return self.view.cluster


@dataclass(slots=True)
class _Track:
    engine: str
    counters: Counters = field(default_factory=Counters)
    bindings: dict[Layout, tuple[Binding, dict[str, Any]]] = field(default_factory=dict)
    page: Page | None = None


class Watched:
    """Takes frames in, and answers with the snapshot of the newest one; frames and questions may come from several threads.

    Args:
        cluster: the inventory.
        interval_s: seconds between frames.
        monotonic: gives seconds that only grow, to tell what taking in a frame costs.
    """

    def __init__(self, cluster: Cluster, *, interval_s: float, monotonic: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._ring = Ring(cluster, interval_s=interval_s)
        self._monotonic = monotonic
        self._tracks: dict[tuple[str, str], _Track] = {}
        self._restarts: Counter[str] = Counter()
        self._probes: dict[tuple[str, str], Probe] = {}
        self._frames = 0
        self._took_s = 0.0
        self._last: Snapshot | None = None
        self._facts: dict[str, dict[str, str]] = {}
        self._preflight: dict[str, Outcome] = {}
        self.follow(cluster)

    def follow(self, cluster: Cluster) -> None:
        """Take over who is there; what was known of those that went is dropped."""
        with self._lock:
            self.cluster = self._ring.cluster = cluster
            self._urls = {e.url.rstrip("/"): w.id for w in cluster.workers for e in w.endpoints}
            self._urls |= {w.url.rstrip("/"): w.id for w in cluster.workers if w.url}
            self._places = {
                (w.id, e.url): (at, place)
                for at, w in enumerate(cluster.workers)
                for place, e in enumerate(w.endpoints)
            }
            here = {w.id for w in cluster.workers}
            self._tracks = {key: track for key, track in self._tracks.items() if key[0] in here}
            self._last = None

    def add(self, frame: Frame) -> None:
        """Take in one frame."""
        with self._lock:
            self._take(frame)

    def _take(self, frame: Frame) -> None:
        begin = self._monotonic()
        self._ring.add(frame)
        for scrape in frame.scrapes:
            self._add(scrape)
        for event in frame.events:
            if event.kind is EventKind.RESTART and event.worker is not None:
                self._restarts[event.worker] += 1
        for probe in frame.probes:
            self._probes[probe.kind, probe.pair or probe.worker or ""] = probe
        self._frames += 1
        self._last = None
        self._took_s = self._monotonic() - begin

    def snapshot(self) -> Snapshot | None:
        """Return the state as of the newest frame, or None before the first; the same object until another frame comes."""
        with self._lock:
            return self._newest()

    def _newest(self) -> Snapshot | None:
        if self._frames == 0:
            return None
        if self._last is None:
            view = self._ring.view()
            self._check(view)
            self._last = Snapshot(
                view=view,
                report=diagnose(view),
                pages=tuple(self._living(view)),
                restarts={w.id: self._restarts[w.id] for w in self.cluster.workers},
                probes=tuple(self._probes.values()),
                frames=self._frames,
                took_s=self._took_s,
                preflight=self._preflight,
            )
        return self._last

    def _check(self, view: View) -> None:
        """Judge the configuration again when something of it is new."""
        facts = {worker: dict(known) for worker, known in view.facts.items() if known}
        if facts != self._facts:
            self._facts = facts
            self._preflight = {meta.id: overall(findings) for meta, findings in run_preflight(view)} if facts else {}

    def _living(self, view: View) -> Iterator[Page]:
        # Where two pages of a worker tell the same, the one that the inventory names first is taken, whichever came first.
        for key in sorted(self._tracks, key=lambda key: self._places.get(key, (0, 0))):
            page = self._tracks[key].page
            if page is not None and view.health[page.worker.id].presence in (Presence.UP, Presence.STALE):
                age = view.at_s - page.scrape.at_s
                if age <= 3 * view.interval_s + 12.0:
                    yield page

    def _add(self, scrape: Scrape) -> None:
        worker = self.cluster.get(scrape.worker)
        if worker is None or (scrape.error or "").startswith(NOT_ASKED):
            return
        key = (scrape.worker, scrape.endpoint)
        if scrape.layout is None or scrape.values is None:
            return
        track = self._tracks.get(key)
        if track is None or track.engine != scrape.engine:
            track = self._tracks[key] = _Track(scrape.engine)
        bound = track.bindings.get(scrape.layout)
        if bound is None:
            if len(track.bindings) >= _MAX_LAYOUTS:
                track.bindings.clear()
            bound = track.bindings[scrape.layout] = (bind(scrape.engine, scrape.layout, self._resolve), {})
        binding, derived = bound
        with np.errstate(all="ignore"):
            grown = binding.apply(track.counters.add(scrape))
            now = binding.apply(scrape.values, scrape.at_s)
        fresh = Page(worker, scrape, binding.columns, now, grown, derived)
        track.page = fresh if scrape.full or track.page is None else _over(track.page, fresh)

    def _resolve(self, label: str) -> str:
        return self._urls.get(label.rstrip("/"), label)


def _over(page: Page, newer: Page) -> Page:
    """Lay a page that was asked for in part over the last whole one."""
    values = dict(zip(page.columns, zip(page.now, page.grown, strict=True), strict=True))
    values.update(zip(newer.columns, zip(newer.now, newer.grown, strict=True), strict=True))
    pairs = np.array(list(values.values()), dtype=np.float64).reshape(-1, 2)
    return Page(page.worker, newer.scrape, tuple(values), pairs[:, 0], pairs[:, 1])
