"""Centres and distances that a few odd values cannot move."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MAD_TO_SIGMA = 1.4826
"""Makes the median absolute deviation comparable to a standard deviation for normal data."""
MIN_PEERS = 4
"""Fewer peers than this say little about what is normal."""


def median(values: Sequence[float]) -> float | None:
    """Return the median, or None of nothing."""
    return float(np.median(values)) if len(values) else None


def robust_z(value: float, peers: Sequence[float], floor: float) -> float | None:
    """Return how many robust deviations a value lies from its peers; None with fewer than four of them.

    `floor` is the least deviation that counts, so that identical peers do not make every difference infinite.
    """
    if len(peers) < MIN_PEERS:
        return None
    centre = float(np.median(peers))
    spread = MAD_TO_SIGMA * float(np.median(np.abs(np.asarray(peers) - centre)))
    return (value - centre) / max(spread, floor)


def skew(values: Sequence[float]) -> float | None:
    """Return max over mean of non-negative values, 1 when even; None when nothing is there or all are zero."""
    total = float(np.sum(values)) if len(values) else 0.0
    return float(np.max(values)) * len(values) / total if total > 0 else None
