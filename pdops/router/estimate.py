"""How long a leg will take, from how long it took."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

_WEIGHT = 0.2
"""Share of the newest reading: the mean follows a change within about ten requests."""


@dataclass(slots=True)
class Estimator:
    """Moving means of seconds and size by key; an estimate is proportional to the size.

    Without a reading the estimate is 0: nobody is turned away on a guess. Proportional also means that fixed costs are
    under-estimated for what is smaller than usual, which errs on the same side.
    """

    _means: dict[Hashable, tuple[float, float]] = field(default_factory=dict)

    def learn(self, key: Hashable, seconds: float, size: float) -> None:
        """Take in one leg of so many seconds for a size above 0."""
        old = self._means.get(key)
        if old is None:
            self._means[key] = seconds, max(size, 1.0)
        else:
            self._means[key] = (
                old[0] + _WEIGHT * (seconds - old[0]),
                old[1] + _WEIGHT * (max(size, 1.0) - old[1]),
            )

    def seconds(self, key: Hashable, size: float) -> float:
        """Return the expected seconds for a size."""
        found = self._means.get(key)
        return 0.0 if found is None else found[0] * size / found[1]

    def mean(self, key: Hashable) -> float | None:
        """Return the moving mean in seconds, None without a reading."""
        found = self._means.get(key)
        return None if found is None else found[0]
