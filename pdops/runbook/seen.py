"""Tell others what runs do: a reader of the journal that goes on where it stopped, and never in the way of a run.

At least once: a place is kept after every thing that was told, so a crash repeats one at most. What is late or much at once is
told as one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pdops.clock import Clock
from pdops.errors import JournalError, PdopsError, TellingError
from pdops.runbook.journal import GENESIS, Event, Journal
from pdops.runbook.places import Place, Places

BURST = 20
"""Events told one by one in one go; more are told as one, since a flood is read by nobody."""
LATE_S = 3600.0
"""Events older than this are told as one: nobody acts on them any more, and they must not look like news."""
TRIES = 3
"""How often something that is refused is sent before it is left out."""
_LONGEST_S = 60.0


class Sink(Protocol):
    """What is told of events."""

    @property
    def name(self) -> str:
        """What people call it; without secrets."""
        ...

    @property
    def key(self) -> str | None:
        """What its place is kept under; None begins at the end each time."""
        ...

    def wants(self, event: Event) -> bool:
        """Whether it is to be told of an event."""
        ...

    def tell(self, events: Sequence[Event], journal: Journal) -> None:
        """Tell one event, or several that came together, as one.

        Raises:
            TellingError: it did not arrive, and will be told again.
        """
        ...


@dataclass(slots=True)
class Standing:
    """How one sink is doing: told, failed attempts, and events left out because they were refused; `why` is the trouble."""

    name: str
    told: int = 0
    failed: int = 0
    left_out: int = 0
    why: str = ""
    tries: int = 0
    refused: int = 0
    next_s: float = 0.0


class Seen:
    """Follows a journal. Safe to call from any thread; two processes with one sink take turns.

    Args:
        journal: its file, opened for reading at every look.
        sinks: who is told. One whose place was never kept begins with what happens from now on.
        clock: where time comes from.
        say: takes a sentence when telling begins to fail, is given up, or works again.
    """

    def __init__(
        self, journal: Path, sinks: Sequence[Sink], clock: Clock, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self._path, self._clock, self._say = journal, clock, say
        self._places = Places(journal)
        self._lock = threading.Lock()
        self._sinks = tuple((sink, Standing(sink.name)) for sink in sinks)
        self._trouble = ""
        self._start = head = _head(journal, clock)
        for sink, standing in self._sinks:
            try:
                with self._places.alone(sink.key) as mine:
                    if mine and head is not None and self._places.get(sink.key, sink) is None:
                        self._places.put(sink.key, sink, head)
            except JournalError as error:
                self._failed(standing, error)

    @property
    def standings(self) -> tuple[Standing, ...]:
        """How each sink is doing."""
        return tuple(standing for _, standing in self._sinks)

    def pump(self, *, last: bool = False) -> int:
        """Tell what is new, and return how many events were told. What fails is said, and raises nothing.

        Args:
            last: nobody will ask again soon, so sinks that failed a moment ago are tried once more.
        """
        with self._lock:
            if not _begun(self._path):
                return 0
            count = 0
            try:
                with Journal(self._path, self._clock, read_only=True) as journal:
                    for sink, standing in self._sinks:
                        if last or self._clock.monotonic() >= standing.next_s:
                            count += self._follow(sink, standing, journal)
            except JournalError as error:
                if not self._trouble:
                    self._say(f"runs are not told: {error}")
                self._trouble = str(error)
            else:
                self._trouble = ""
            return count

    def _follow(self, sink: Sink, standing: Standing, journal: Journal) -> int:
        try:
            with self._places.alone(sink.key) as mine:
                return self._tell(sink, standing, journal) if mine else 0
        except (PdopsError, OSError) as error:
            self._failed(standing, error)
        except Exception as error:  # noqa: BLE001  a defect in one sink must not silence the others
            self._failed(standing, TellingError("a defect", where=sink.name, why=f"{type(error).__name__}: {error}"))
        return 0

    def _tell(self, sink: Sink, standing: Standing, journal: Journal) -> int:
        # Without a kept place: where this process began, else here.
        place = self._places.get(sink.key, sink) or self._start or Place(*journal.head())
        if journal.link(place.seq) != place.hash:
            self._say(f"{sink.name}: the journal is not the one that was told of; only what comes next is told")
            self._places.put(sink.key, sink, Place(*journal.head()))
            return 0
        wanted, end = [], place
        for event in journal.events(after=place.seq):
            end = Place(event.seq, event.hash)
            if sink.wants(event):
                wanted.append(event)
        count = 0
        for group in self._groups(wanted):
            try:
                sink.tell(group, journal)
            except TellingError as error:
                self._failed(standing, error)
                standing.refused += error.final
                if standing.refused < TRIES:
                    return count
                standing.left_out += len(group)
                self._say(f"{sink.name}: {len(group)} event(s) are left out after {TRIES} refusals: {error.why}")
                standing.tries = standing.refused = 0
            else:
                count += len(group)
                standing.told += len(group)
                self._worked(standing)
            self._places.put(sink.key, sink, Place(group[-1].seq, group[-1].hash))
        if end != place:
            self._places.put(sink.key, sink, end)
        if not wanted:
            self._worked(standing)
        return count

    def _groups(self, wanted: Sequence[Event]) -> list[Sequence[Event]]:
        """Return what is told as one first, then single events."""
        now_s = self._clock.now()
        late = next((i for i, e in enumerate(wanted) if now_s - e.at_s <= LATE_S), len(wanted))
        first = max(late, len(wanted) - BURST)
        return [*([wanted[:first]] if first else []), *([event] for event in wanted[first:])]

    def _failed(self, standing: Standing, error: Exception) -> None:
        if not standing.why:
            self._say(f"{standing.name} is not told: {error}; the run goes on")
        standing.failed += 1
        standing.tries += 1
        standing.why = str(error)
        standing.next_s = self._clock.monotonic() + min(_LONGEST_S, 2.0 ** (standing.tries - 1))

    def _worked(self, standing: Standing) -> None:
        if standing.why:
            self._say(f"{standing.name} is told again")
        standing.why, standing.tries, standing.refused, standing.next_s = "", 0, 0, 0.0


def _head(path: Path, clock: Clock) -> Place | None:
    """Return where a journal ends: at its beginning while there is none, None when it cannot be read."""
    if not _begun(path):
        return Place(0, GENESIS)
    try:
        with Journal(path, clock, read_only=True) as journal:
            return Place(*journal.head())
    except JournalError:
        return None


def _begun(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False
