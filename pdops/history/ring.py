"""Keep what every worker said over the last minutes, and show it as a View."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from pdops.catalog.binding import Binding, bind
from pdops.history.columns import ColumnStore
from pdops.history.index import Index, LazySeries, index_of
from pdops.model.cluster import Cluster
from pdops.model.frame import NOT_ASKED, Event, Frame, Layout, LogLine, Probe, Scrape
from pdops.model.series import Window
from pdops.model.times import rfc3339
from pdops.model.view import PAGE, TIMESTAMPS, Health, Note, Presence, View
from pdops.sources.redact import redact_urls

SPAN_S = 900.0
WINDOW_S = 60.0
BASE_END_S = 300.0
"""The base window ends this long before now, so that a fault of the last minutes is not compared with itself."""
BASE_MIN_S = 60.0
STALE_INTERVALS = 3.0
_MAX_EVENTS = 2_000
_LEAST_LINES = 100
"""Log lines of one worker that are kept however many workers there are."""
_ABSURD = 1e30


@dataclass(slots=True)
class _Track:
    """What is kept of one worker's endpoint."""

    scalars: ColumnStore
    buckets: ColumnStore
    engine: str
    layouts: dict[Layout, tuple[Binding, np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=dict)


@dataclass(slots=True)
class _Contact:
    """When a page of a worker was heard of, and whose it is."""

    engine: str = ""
    answered_s: float | None = None
    error: str | None = None
    failing_since_s: float | None = None


class Ring:
    """Fifteen minutes of canonical columns, bounded in memory.

    Histogram buckets are stored only when a full page brings them; all else at every frame.
    """

    def __init__(
        self, cluster: Cluster, *, interval_s: float = 1.0, span_s: float = SPAN_S, window_s: float = WINDOW_S
    ) -> None:
        self.cluster = cluster
        self.interval_s = interval_s
        self.window_s = window_s
        self._rows = int(span_s / interval_s) + 1
        self._span_s = span_s
        self._tracks: dict[tuple[str, str], _Track] = {}
        self._contacts: dict[str, dict[str, _Contact]] = {}
        self._events: deque[Event] = deque(maxlen=_MAX_EVENTS)
        self._logs: dict[str, deque[LogLine]] = {}
        self._probes: deque[Probe] = deque(maxlen=_MAX_EVENTS)
        self._facts: dict[str, dict[str, str]] = {}
        self._notes: dict[tuple[str, str], Note] = {}
        self._said: dict[tuple[str, str], Note] = {}
        self._index: Index | None = None
        self._start_s: float | None = None
        self._at_s = 0.0
        self._urls = {e.url.rstrip("/"): w.id for w in cluster.workers for e in w.endpoints}
        self._urls |= {w.url.rstrip("/"): w.id for w in cluster.workers if w.url}

    def add(self, frame: Frame) -> None:
        """Take in one frame; samples a little older than the last are refused and noted.

        A frame of longer ago tells that the clock was set back: what was seen before moves with it, and time goes on from there.
        """
        if self._start_s is None:
            self._start_s = frame.at_s
        elif self._at_s - frame.at_s > STALE_INTERVALS * self.interval_s:
            self._set_back(frame.at_s)
        self._at_s = max(self._at_s, frame.at_s)
        for scrape in frame.scrapes:
            self._add_scrape(scrape)
        self._events.extend(frame.events)
        for line in frame.logs:
            self._log(line)
        self._probes.extend(frame.probes)
        for worker, facts in frame.facts.items():
            self._facts.setdefault(worker, {}).update(facts)

    def _set_back(self, now_s: float) -> None:
        """Move all that is kept so that its newest moment lies an interval before now."""
        by_s = now_s - self.interval_s - self._at_s
        for track in self._tracks.values():
            track.scalars.shift(by_s)
            track.buckets.shift(by_s)
        for contact in (c for pages in self._contacts.values() for c in pages.values()):
            contact.answered_s = None if contact.answered_s is None else contact.answered_s + by_s
            contact.failing_since_s = None if contact.failing_since_s is None else contact.failing_since_s + by_s
        self._events = deque((replace(e, t_s=e.t_s + by_s) for e in self._events), maxlen=_MAX_EVENTS)
        self._probes = deque((replace(p, t_s=p.t_s + by_s) for p in self._probes), maxlen=_MAX_EVENTS)
        for worker, lines in self._logs.items():
            self._logs[worker] = deque((replace(x, t_s=x.t_s + by_s) for x in lines), maxlen=lines.maxlen)
        self._start_s = None if self._start_s is None else self._start_s + by_s
        self._at_s += by_s
        self._note(
            "pdops",
            "clock",
            f"the clock was set back by {-by_s:.0f} s at {rfc3339(now_s)}: what was seen before is shown that much earlier",
            "see whether this host's clock is synchronised",
        )

    def _log(self, line: LogLine) -> None:
        mine = self._logs.get(line.worker)
        if mine is None:
            # Each worker has room of its own, so that one that floods pushes out nobody else's lines.
            share = max(_LEAST_LINES, _MAX_EVENTS // max(1, len(self.cluster.workers)))
            mine = self._logs[line.worker] = deque(maxlen=share)
        mine.append(line)

    def _add_scrape(self, scrape: Scrape) -> None:
        if scrape.error is not None and scrape.error.startswith(NOT_ASKED):
            return
        contact = self._contacts.setdefault(scrape.worker, {}).setdefault(scrape.endpoint, _Contact())
        contact.engine = scrape.engine or contact.engine
        if scrape.layout is None or scrape.values is None:
            contact.error = scrape.error or "no answer"
            if contact.failing_since_s is None:
                contact.failing_since_s = scrape.at_s
            return
        contact.answered_s, contact.error, contact.failing_since_s = scrape.at_s, None, None
        self._read_in_part(scrape)
        track = self._track(scrape)
        last = track.scalars.last_t
        if last is not None and scrape.at_s <= last:
            self._note(scrape.worker, "clock", "a sample came with an older time than the one before and was left out")
            return
        binding, scalar_from, scalar_to, bucket_from, bucket_to = self._bound(track, scrape)
        with np.errstate(over="ignore", invalid="ignore"):
            columns = binding.apply(scrape.values, scrape.at_s)
        # No engine counts this far; what claims to is unreadable, and unreadable is unknown.
        columns[~(np.abs(columns) < _ABSURD)] = np.nan
        columns[binding.plain & (columns < 0)] = np.nan
        track.scalars.append(scrape.at_s, scalar_to, columns[scalar_from])
        if len(bucket_from):
            track.buckets.append(scrape.at_s, bucket_to, columns[bucket_from])

    def _read_in_part(self, scrape: Scrape) -> None:
        """Note what a page gives no data of now, and forget it once it does; each page of a worker by itself."""
        late_s = 0.0 if scrape.stamp_s is None else scrape.at_s - scrape.stamp_s
        found = {PAGE: scrape.malformed > 0, TIMESTAMPS: late_s > self.window_s}
        for code, here in found.items():
            key = (scrape.worker, f"{code} {scrape.endpoint}")
            if not here:
                self._notes.pop(key, None)
                continue
            of = f" {redact_urls(scrape.endpoint)}" if scrape.endpoint else ""
            if code == PAGE:
                why = f"{scrape.malformed} lines of the page{of} cannot be read or repeat a series"
                fix = "read the page with curl: what stands between may cut it off, or its writer is at fault"
            else:
                why = f"the page{of} gives samples a time {late_s:.0f} s back: its values are that old"
                fix = "scrape the engine itself, or see why what stands between is behind"
            self._notes[key] = Note(worker=scrape.worker, code=code, why=why, fix=fix)

    def _track(self, scrape: Scrape) -> _Track:
        key = (scrape.worker, scrape.endpoint)
        track = self._tracks.get(key)
        if track is None or track.engine != scrape.engine:
            # A sample from before the span tells what grew at its beginning. Buckets come with every tenth page only.
            kept_s = self._span_s + max(60.0, 10.0 * self.interval_s)
            track = _Track(ColumnStore(self._rows, kept_s), ColumnStore(self._rows, kept_s), scrape.engine)
            self._tracks[key] = track
            self._index = None
        return track

    def _bound(self, track: _Track, scrape: Scrape) -> tuple[Binding, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        layout = scrape.layout
        assert layout is not None
        known = track.layouts.get(layout)
        if known is None:
            binding = bind(scrape.engine, layout, self._resolve)
            is_bucket = np.array([c.part.startswith("le=") for c in binding.columns], dtype=bool)
            scalar_from, bucket_from = np.flatnonzero(~is_bucket), np.flatnonzero(is_bucket)
            known = (
                binding,
                scalar_from,
                track.scalars.places(tuple(binding.columns[i] for i in scalar_from)),
                bucket_from,
                track.buckets.places(tuple(binding.columns[i] for i in bucket_from)),
            )
            if len(track.layouts) > 8:
                track.layouts.clear()
            track.layouts[layout] = known
            self._index = None
            self._facts.setdefault(scrape.worker, {}).update(binding.facts)
            if binding.escaped:
                self._note(
                    scrape.worker,
                    "names-escaped",
                    f"{len(binding.escaped)} names came with ':' written as '_' (such as {binding.escaped[0]})",
                    "dashboards and alerts that use the colon find nothing: add a relabel rule vllm_(.+) -> vllm:$1",
                )
        return known

    def _resolve(self, label: str) -> str:
        return self._urls.get(label.rstrip("/"), label)

    def take_notes(self, notes: Iterable[Note]) -> None:
        """Keep what a source says about its own data now; what it no longer says is taken back."""
        self._said = {(note.worker, note.code): note for note in notes}

    def _note(self, worker: str, code: str, why: str, fix: str = "") -> None:
        self._notes[worker, code] = Note(worker=worker, code=code, why=why, fix=fix)

    def view(self, at_s: float | None = None) -> View:
        """Return the state at the newest frame; `at_s` may only be later, to let data age."""
        now_s = max(self._at_s, at_s or 0.0)
        start = self._start_s if self._start_s is not None else now_s
        start = max(start, now_s - self._span_s)
        horizon = now_s - self._span_s
        return View(
            cluster=self.cluster,
            at_s=now_s,
            start_s=start,
            now=Window(now_s - self.window_s, now_s),
            base=base_window(start, now_s, self.window_s),
            series=self._series(),
            health={w.id: self._health(w.id, now_s) for w in self.cluster.workers},
            events=tuple(e for e in self._events if e.t_s >= horizon),
            logs=self._lines(horizon),
            probes=tuple(p for p in self._probes if p.t_s >= horizon),
            facts={w: dict(f) for w, f in self._facts.items()},
            notes=tuple({**self._notes, **self._said}.values()),
            interval_s=self.interval_s,
        )

    def _lines(self, horizon: float) -> tuple[LogLine, ...]:
        found = [line for lines in self._logs.values() for line in lines if line.t_s >= horizon]
        return tuple(sorted(found, key=lambda line: line.t_s))

    def _series(self) -> LazySeries:
        stores = {key: (track.scalars, track.buckets) for key, track in self._tracks.items()}
        if self._index is None:
            self._index = index_of(stores)
        return LazySeries(self._index, stores)

    def _health(self, worker: str, now_s: float) -> Health:
        pages = self._contacts.get(worker)
        if not pages:
            return Health(Presence.NEVER, why="no data of this worker was ever seen")
        each = [self._page_health(contact, now_s) for contact in pages.values()]
        away = [h for h in each if h.presence is not Presence.UP]
        known = self.cluster.get(worker)
        own = [h for c, h in zip(pages.values(), each, strict=True) if known is not None and c.engine == known.engine]
        if own and all(h.presence is Presence.DOWN for h in own):
            # Its host may still answer: what serves does not.
            return own[0]
        if not away or len(away) == len(each):
            return (away or each)[0]
        # It lives, but a part of what it tells is missing.
        return Health(Presence.STALE, away[0].age_s, f"one of its pages {away[0].why}", away[0].since_s)

    def _page_health(self, contact: _Contact, now_s: float) -> Health:
        if contact.answered_s is None:
            return Health(Presence.NEVER, why=f"never answered: {contact.error}", since_s=contact.failing_since_s)
        age = now_s - contact.answered_s
        if age <= STALE_INTERVALS * self.interval_s:
            return Health(Presence.UP, age, f"last scrape failed: {contact.error}" if contact.error else None)
        if contact.error is not None:
            return Health(Presence.DOWN, age, f"does not answer: {contact.error}", contact.failing_since_s)
        return Health(Presence.STALE, age, f"nothing heard for {age:.0f} s", contact.answered_s)


def base_window(start_s: float, now_s: float, window_s: float) -> Window | None:
    """Return the window to compare with: all that is older than five minutes, or what there is before the current window.

    None when less than a minute of it exists.
    """
    for gap_s in (BASE_END_S, window_s * 1.5):
        if now_s - gap_s - start_s >= BASE_MIN_S:
            return Window(start_s, now_s - gap_s)
    return None
