"""Centres and distances that a few odd values cannot move."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np

from pdops.model.series import Floats

MAD_TO_SIGMA = 1.4826
"""Makes the median absolute deviation comparable to a standard deviation for normal data."""
MIN_PEERS = 4
"""Fewer peers than this say little about what is normal."""


def median(values: Sequence[float]) -> float | None:
    """Return the median, or None of nothing."""
    return float(np.median(values)) if len(values) else None


def median_of_rest(ranked: Sequence[float], value: float) -> float:
    """Return the median of ascending values, at least two, without the one that is given."""
    own, rest = bisect_left(ranked, value), len(ranked) - 1
    low, high = (ranked[place + (place >= own)] for place in ((rest - 1) // 2, rest // 2))
    return (low + high) / 2


def quantile(values: Floats, q: float) -> float:
    """Return the q-quantile (0-1) of at least one value, linear between two of them.

    numpy's own answers the same, and takes ten times as long for a handful of values.
    """
    ordered = np.sort(values)
    place = (len(ordered) - 1) * q
    low = int(place)
    part = place - low
    a, b = float(ordered[low]), float(ordered[min(low + 1, len(ordered) - 1)])
    return a + (b - a) * part if part < 0.5 else b - (b - a) * (1.0 - part)


def robust_z(value: float, peers: Sequence[float] | Floats, floor: float) -> float | None:
    """Return how many robust deviations a value lies from its peers; None with fewer than four of them.

    `floor` is the least deviation that counts, so that identical peers do not make every difference infinite. Where it
    is 0 and the peers are identical nothing says how far is far: 0 for what they have, None for anything else.
    """
    if len(peers) < MIN_PEERS:
        return None
    centre = float(np.median(peers))
    spread = MAD_TO_SIGMA * float(np.median(np.abs(np.asarray(peers) - centre)))
    scale = max(spread, floor)
    if scale <= 0:
        return 0.0 if value == centre else None
    return (value - centre) / scale


def skew(values: Sequence[float]) -> float | None:
    """Return max over mean of non-negative values, 1 when even; None when nothing is there or all are zero."""
    total = float(np.sum(values)) if len(values) else 0.0
    return float(np.max(values)) * len(values) / total if total > 0 else None


APART = 3.5
"""Robust deviations beyond which a value is an outlier (Iglewicz and Hoaglin 1993)."""


def outliers(values: Mapping[str, float], floor: float) -> dict[str, float]:
    """Return the keys that lie apart from the others with their robust deviations; empty with fewer than five values.

    Each is measured against all the others, so that one far value does not widen its own yardstick. More than a third
    apart are none: then it is not known which part is the usual one.
    """
    found: dict[str, float] = {}
    if len(values) <= MIN_PEERS:
        return found
    keys = list(values)
    column = np.array([values[k] for k in keys], dtype=np.float64)
    centre = float(np.median(column))
    spread = MAD_TO_SIGMA * float(np.median(np.abs(column - centre)))
    # Only what is far from all can be far from the others: the rest is not looked at one by one.
    for index in np.flatnonzero(np.abs(column - centre) > min(spread, floor) * APART / 2):
        z = robust_z(float(column[index]), np.delete(column, index), floor)
        if z is not None and abs(z) > APART:
            found[keys[int(index)]] = z
    return found if 3 * len(found) <= len(keys) else {}
