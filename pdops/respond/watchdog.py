"""The dead-man's switch: an alert that always fires, and what it means when it does not come."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum

from pdops.clock import Clock


class Heard(StrEnum):
    """What is known of the chain from Prometheus to here."""

    OFF = "off"
    """Nobody watches it."""
    WAITING = "waiting"
    """It has not come yet, and is not late."""
    HEARD = "heard"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Pulse:
    """How the Watchdog is: its state, and seconds since it was heard; None when it never was."""

    state: Heard
    age_s: float | None

    @property
    def alive(self) -> bool:
        """Whether what is heard can be relied on; nobody watching is taken as a decision."""
        return self.state in (Heard.HEARD, Heard.OFF)

    def told(self) -> str:
        """Return why nothing starts by itself."""
        if self.age_s is None:
            return "the Watchdog alert has not come yet"
        return f"the Watchdog alert was last heard {self.age_s:.0f} s ago: alerts may be missing or old"


class Watchdog:
    """Counts on the monotonic clock how long the Watchdog has been silent.

    Args:
        limit_s: seconds after which silence means that alerting is broken; 0 switches it off.
        clock: where time comes from.
    """

    def __init__(self, limit_s: float, clock: Clock) -> None:
        self.limit_s, self._clock = limit_s, clock
        self._lock = threading.Lock()
        self._began_s = clock.monotonic()
        self._heard_s: float | None = None

    def hear(self, age_s: float = 0.0) -> None:
        """Take it as heard, so many seconds ago; a clock that is ahead hears it now."""
        at_s = self._clock.monotonic() - max(0.0, age_s)
        with self._lock:
            self._heard_s = at_s if self._heard_s is None else max(self._heard_s, at_s)

    def pulse(self) -> Pulse:
        """Return how it is now."""
        now_s = self._clock.monotonic()
        with self._lock:
            heard_s = self._heard_s
        if not self.limit_s:
            return Pulse(Heard.OFF, None)
        if heard_s is None:
            return Pulse(Heard.SILENT if now_s - self._began_s > self.limit_s else Heard.WAITING, None)
        age_s = now_s - heard_s
        return Pulse(Heard.SILENT if age_s > self.limit_s else Heard.HEARD, age_s)
