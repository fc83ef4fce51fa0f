"""Several sources behind one screen: clusters to switch between, or recordings to hold beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pdops.errors import PdopsError
from pdops_tui.snapshot import Action, Command, Feed, Snapshot

_OF_ONE: tuple[Action, ...] = ("record", "stop_recording", "event", "change", "mark", "to_mark", "seek")
"""What is meant for the source on the screen only: its file, and moments that others do not have."""


class Group:
    """Feeds that run side by side; one of them is on the screen.

    Args:
        feeds: the feeds, at least one.
        names: what each is called, as many.
    """

    def __init__(self, feeds: Sequence[Feed], names: Sequence[str]) -> None:
        self._feeds, self._names = tuple(feeds), tuple(names)
        self._number = 0
        self._linked = True

    def start(self) -> None:
        """Begin to look at every source."""
        for feed in self._feeds:
            feed.start()

    def stop(self) -> None:
        """End all of them; may be called twice."""
        for feed in self._feeds:
            feed.stop()

    @property
    def failure(self) -> PdopsError | None:
        """Why the source on the screen ended by itself; before there is any data, why all of them did."""
        failed = [feed.failure for feed in self._feeds]
        if self._feeds[self._number].latest() is not None:
            return failed[self._number]
        return failed[0] if all(f is not None for f in failed) else None

    def latest(self) -> Snapshot | None:
        """Return the newest state of the source on the screen; of the first that has one while it has none."""
        each = [feed.latest() for feed in self._feeds]
        here = each[self._number]
        shown = here or next((s for s in each if s is not None), None)
        if shown is None:
            return None
        number = next(i for i, s in enumerate(each) if s is shown)
        beside = tuple(replace(s, number=i) for i, s in enumerate(each) if s is not None)
        # The sum grows with each of them, and the number tells two sources of the same sum apart.
        seq = sum(s.seq for s in beside) * len(each) + self._number
        return replace(
            shown,
            seq=seq,
            number=number,
            sources=self._names,
            linked=self._linked,
            beside=beside,
            trouble=shown.trouble if here is not None else self._nothing(),
        )

    def _nothing(self) -> str:
        failure = self._feeds[self._number].failure
        return f"{self._names[self._number]}: {failure or 'no data yet'}"

    def control(self, command: Command) -> None:
        """Show another source, link or part them, or hand the wish to the source on the screen or to all."""
        if command.action == "source":
            self._number = round(command.value) % len(self._feeds)
        elif command.action == "link":
            self._linked = not self._linked
        else:
            alone = not self._linked or command.action in _OF_ONE
            for number, feed in enumerate(self._feeds):
                if not alone or number == self._number:
                    feed.control(command)
