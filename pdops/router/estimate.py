"""How long a leg will take, from how long it took."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

_WEIGHT = 0.2
"""Share of the newest reading: the mean follows a change within about ten requests."""


@dataclass(slots=True)
class _Seen:
    """Moving means of seconds and size, and how they vary together."""

    seconds: float
    size: float
    together: float = 0.0
    spread: float = 0.0

    def learn(self, seconds: float, size: float) -> None:
        off_s, off = seconds - self.seconds, size - self.size
        self.seconds += _WEIGHT * off_s
        self.size += _WEIGHT * off
        # The moving covariance and variance that go with an exponentially weighted mean.
        self.together = (1 - _WEIGHT) * (self.together + _WEIGHT * off_s * off)
        self.spread = (1 - _WEIGHT) * (self.spread + _WEIGHT * off * off)

    def slope(self) -> float:
        """Return seconds per unit of size as seen: never below 0, never more than if nothing were fixed cost."""
        seen = self.together / self.spread if self.spread > 0 else 0.0
        return min(max(seen, 0.0), self.seconds / self.size)


@dataclass(slots=True)
class Estimator:
    """Expects a leg to take its mean time, more or less by what the time was seen to change with the size.

    Without a reading the estimate is 0, and without readings of different sizes the size does not count: nobody is turned
    away on a guess.
    """

    _seen: dict[Hashable, _Seen] = field(default_factory=dict)

    def learn(self, key: Hashable, seconds: float, size: float) -> None:
        """Take in one leg of so many seconds for a size above 0."""
        size = max(size, 1.0)
        if (seen := self._seen.get(key)) is None:
            self._seen[key] = _Seen(seconds, size)
        else:
            seen.learn(seconds, size)

    def seconds(self, key: Hashable, size: float) -> float:
        """Return the expected seconds for a size."""
        seen = self._seen.get(key)
        return 0.0 if seen is None else max(0.0, seen.seconds + seen.slope() * (size - seen.size))

    def mean(self, key: Hashable) -> float | None:
        """Return the moving mean in seconds, None without a reading."""
        seen = self._seen.get(key)
        return None if seen is None else seen.seconds
