"""Find when a series left its usual course: two-sided CUSUM on standardised residuals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pdops.model.series import Floats
from pdops.stats.robust import MAD_TO_SIGMA

DRIFT = 1.0
"""Allowance k in standard deviations: shifts of twice this size are found soonest (Page 1954; k is half of the shift)."""
ALARM = 8.0
"""Decision interval h in standard deviations. With k = 1 an independent normal series reaches 8 about once in 10^7 samples
(Siegmund's approximation); samples of one engine are correlated, which costs orders of magnitude of that."""
MIN_NORMAL = 12
"""Fewer samples than this of the usual course give no spread to measure by."""
_CLIP = 8.0
"""Most that one sample may add, in standard deviations, so that a single spike alone is no change."""


@dataclass(frozen=True, slots=True)
class Change:
    """A lasting departure: since `onset_s`, up (+1) or down (-1), by `size` on the median in the series' own unit."""

    onset_s: float
    direction: Literal[1, -1]
    size: float


def change(t: Floats, v: Floats, normal_end_s: float, floor: float) -> Change | None:
    """Return the change that still lasts at the end of a series, or None.

    `v` (n,) is centred and scaled by the median and the MAD of the samples up to `normal_end_s`; `floor` is the least
    deviation that counts, in the unit of `v`. A departure that ended before the last sample is none. None as well with
    fewer than `MIN_NORMAL` usual samples.
    """
    normal = v[t <= normal_end_s]
    if len(normal) < MIN_NORMAL or len(v) == len(normal):
        return None
    centre = float(np.median(normal))
    spread = max(MAD_TO_SIGMA * float(np.median(np.abs(normal - centre))), floor)
    if spread <= 0:
        return None
    z = np.clip((v - centre) / spread, -_CLIP, _CLIP)
    found: list[Change] = []
    directions: tuple[Literal[1, -1], ...] = (1, -1)
    for direction in directions:
        onset = _onset(direction * z)
        if onset is None or t[onset] <= normal_end_s - (normal_end_s - t[0]) / 2:
            continue
        size = float(np.median(v[onset:])) - centre
        if direction * size > floor:
            found.append(Change(float(t[onset]), direction, size))
    return max(found, key=lambda c: abs(c.size), default=None)


def _onset(z: Floats) -> int | None:
    """Return the sample from which the sum has stayed above zero and passed the alarm, if it is above it at the end."""
    total = 0.0
    start = 0
    alarmed = False
    for index, value in enumerate(z.tolist()):
        total += value - DRIFT
        if total <= 0.0:
            total, alarmed, start = 0.0, False, index + 1
        elif total > ALARM:
            # A long stay far above the alarm must not keep it up for as long again after the series is back.
            total, alarmed = min(total, 2 * ALARM), True
    return _sharpened(z, start) if alarmed and total > ALARM else None


def _sharpened(z: Floats, start: int) -> int:
    """Return the likeliest sample of a step at or after `start`, since a chance excursion just before it starts the sum early.

    For normal noise that is where the sum of z less half of the step is least.
    """
    half = float(np.median(z[start:])) / 2
    path = np.concatenate([[0.0], np.cumsum(z[start:] - half)])
    return start + int(np.argmin(path[:-1]))
