"""Who is told of events: people through channels, and a tracing backend."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol
from urllib.parse import urlsplit

from pdops.actuate.notify import Channel
from pdops.errors import JournalError, TellingError
from pdops.runbook import notes, trail
from pdops.runbook.journal import Event, Journal, Run
from pdops.telemetry.past import PastSpan
from pdops.telemetry.tracing import TelemetryError

_BATCH = 200
"""Spans sent at once; a receiver's usual limit of 4 MiB holds many times as many."""


class Notified:
    """Tells a channel in words.

    Args:
        channel: how it is told.
        wants: of which events; all that people are told of unless given.
    """

    def __init__(self, channel: Channel, wants: Callable[[Event], bool] = notes.telling) -> None:
        self._channel, self._wants = channel, wants

    @property
    def name(self) -> str:
        """What people call it."""
        return self._channel.name

    @property
    def key(self) -> str | None:
        """What its place is kept under."""
        return self._channel.key

    def wants(self, event: Event) -> bool:
        """Whether it is to be told of an event."""
        return self._wants(event)

    def tell(self, events: Sequence[Event], journal: Journal) -> None:
        """Send one note. See `Sink.tell`."""
        known = [(event, _run(event, journal)) for event in events]
        self._channel.send(notes.note(*known[0]) if len(known) == 1 else notes.summary(known))


class Writer(Protocol):
    """Takes spans."""

    def write(self, spans: Sequence[PastSpan]) -> None:
        """Send spans; a `TelemetryError` says that they were not taken."""
        ...


class Traced:
    """Sends one trace a run: a span a step as it ends, and the run's own at its end. A span that is sent twice is the same.

    Args:
        writer: takes the spans.
        endpoint: where it sends them, for its name.
    """

    def __init__(self, writer: Writer, endpoint: str) -> None:
        self._writer = writer
        self.name = f"traces {urlsplit(endpoint).hostname}"
        self.key = f"otlp-{hashlib.sha256(endpoint.encode()).hexdigest()[:16]}"

    def wants(self, event: Event) -> bool:
        """Whether an event ends a span."""
        return trail.closing(event)

    def tell(self, events: Sequence[Event], journal: Journal) -> None:
        """Send the spans that these events end. See `Sink.tell`."""
        wanted: dict[str, set[int]] = {}
        for event in events:
            wanted.setdefault(event.run, set()).add(event.seq)
        made = [s for run, seqs in wanted.items() for s in trail.spans(journal.events(run), frozenset(seqs))]
        try:
            for start in range(0, len(made), _BATCH):
                self._writer.write(made[start : start + _BATCH])
        except TelemetryError as error:
            raise TellingError(error.what, where=self.name, why=error.why, hint=error.hint) from error


def _run(event: Event, journal: Journal) -> Run | None:
    if not event.run:
        return None
    try:
        return journal.run(event.run)
    except JournalError:
        return None
