"""What went wrong with alerts on their way in, for as long as it is not over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pdops.clock import Clock
from pdops.model.times import rfc3339
from pdops.respond.alerts import WATCHDOG, Delivery, Invalid

NOBODY = ""
"""Stands for whoever delivers without a valid token."""
SAID_S = 900.0
"""How long it is said that somebody was not let in: three times Alertmanager's default `group_interval`, so that one who goes on
trying is said without a gap."""
_NOT_LET_IN = frozenset({401, 403})


@dataclass(frozen=True, slots=True)
class _Trouble:
    """`at_s` is on the monotonic clock; `status` is None where a delivery was taken but for what cannot be read."""

    at_s: float
    status: int | None
    say: str


class Troubles:
    """Keeps the last trouble of each who delivers, and that of the journal and of Alertmanager's list.

    Args:
        clock: where time comes from.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._of: dict[str, _Trouble] = {}
        self.unwritten: str | None = None
        """Why the journal could not be written; None since it could."""
        self._listed: tuple[Invalid, ...] = ()

    def refused(self, who: str, status: int, why: str) -> None:
        """Take that a delivery was answered with an error: Alertmanager does not send most of those again."""
        whose = f"of {who} " if who != NOBODY else ""
        say = f"a delivery {whose}at {rfc3339(self._clock.now())} was refused (HTTP {status}: {why})"
        if status not in _NOT_LET_IN:
            say += ", and no alert but the Watchdog was taken since"
        self._of[who] = _Trouble(self._clock.monotonic(), status, say)

    def taken(self, who: str, delivery: Delivery) -> None:
        """Take that a delivery was written down, all of it but what cannot be read.

        The Watchdog comes by a route of its own: that it arrives says nothing of the others.
        """
        if delivery.invalid:
            at, count = rfc3339(self._clock.now()), len(delivery.invalid)
            say = f"{count} alerts of the delivery of {who} at {at} cannot be read: {delivery.invalid[0].why}"
            self._of[who] = _Trouble(self._clock.monotonic(), None, say)
        elif any(alert.name != WATCHDOG for alert in delivery.alerts):
            self._of.pop(who, None)

    def unreadable(self, invalid: tuple[Invalid, ...]) -> None:
        """Take what cannot be read of Alertmanager's list as it is now."""
        self._listed = invalid

    def caught_up(self, asked_s: float) -> None:
        """Take that all that Alertmanager has was read and written down, asked for at that time (seconds, monotonic clock).

        Whoever was not let in is not set right by it.
        """
        self._of = {w: t for w, t in self._of.items() if t.status in _NOT_LET_IN or t.at_s >= asked_s}

    def told(self, known: Callable[[str], object | None]) -> Iterator[str]:
        """Yield a sentence for each that is not over.

        Args:
            known: returns None for a name that nobody has any more.
        """
        oldest_s = self._clock.monotonic() - SAID_S
        for who, trouble in list(self._of.items()):
            if trouble.status in _NOT_LET_IN and trouble.at_s <= oldest_s:
                continue
            if trouble.status == 403 and known(who) is None:
                continue
            yield trouble.say
        if self.unwritten is not None:
            yield f"alerts cannot be written down: {self.unwritten}"
        if self._listed:
            yield (
                f"{len(self._listed)} alerts that Alertmanager lists cannot be read, so none is taken as resolved because it "
                f"is not listed: {self._listed[0].why}"
            )
