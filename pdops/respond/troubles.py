"""What went wrong with alerts on their way in, for as long as it is not over."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.clock import Clock
from pdops.model.times import rfc3339
from pdops.respond.alerts import Invalid

NOBODY = ""
"""Stands for whoever delivers without a valid token."""


class Troubles:
    """Keeps the last trouble of each who delivers, and that of the journal and of Alertmanager's list.

    Args:
        clock: where time comes from.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused: dict[str, str] = {}
        self.unwritten: str | None = None
        """Why the journal could not be written; None since it could."""
        self._listed: tuple[Invalid, ...] = ()

    def refused(self, who: str, status: int, why: str) -> None:
        """Take that a delivery was answered with an error: Alertmanager does not send most of those again."""
        whose = f"of {who} " if who != NOBODY else ""
        at = rfc3339(self._clock.now())
        self._refused[who] = f"a delivery {whose}at {at} was refused (HTTP {status}: {why}), and none was taken since"

    def taken(self, who: str, invalid: tuple[Invalid, ...]) -> None:
        """Take that a delivery was written down, all of it but what cannot be read."""
        self._refused.pop(NOBODY, None)
        self._refused.pop(who, None)
        if invalid:
            self._refused[who] = f"{len(invalid)} alerts of the last delivery of {who} cannot be read: {invalid[0].why}"

    def listed(self, invalid: tuple[Invalid, ...]) -> None:
        """Take what cannot be read of Alertmanager's list as it is now."""
        self._listed = invalid

    def told(self) -> Iterator[str]:
        """Yield a sentence for each that is not over."""
        yield from list(self._refused.values())
        if self.unwritten is not None:
            yield f"alerts cannot be written down: {self.unwritten}"
        if self._listed:
            yield (
                f"{len(self._listed)} alerts that Alertmanager lists cannot be read, so none is taken as resolved because it "
                f"is not listed: {self._listed[0].why}"
            )
