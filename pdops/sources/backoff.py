"""How long to leave a target alone that does not answer."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

CAP_S = 3.0
"""With the connection timeout of 1.5 s this shows a returning worker within 5 s."""
_JITTER = 0.15


@dataclass(slots=True)
class Backoff:
    """Exponential waits from two intervals up to a cap, both in seconds, each 15 % longer or shorter at random.

    An interval longer than the cap is the wait.
    """

    interval_s: float
    cap_s: float = CAP_S
    failures: int = 0
    rng: random.Random = field(default_factory=random.Random)

    def failed(self) -> float:
        """Count a failure and return the seconds to wait from the beginning of the failed try.

        The first failure waits for nothing: the next tick asks again.
        """
        self.failures += 1
        if self.failures == 1:
            return 0.0
        longest = max(self.cap_s, self.interval_s)
        wait = min(longest, self.interval_s * 2.0 ** min(self.failures - 1, 30))
        return wait * self.rng.uniform(1.0 - _JITTER, 1.0 + _JITTER)

    def answered(self) -> None:
        """Forget the failures."""
        self.failures = 0
