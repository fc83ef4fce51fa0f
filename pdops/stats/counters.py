"""Increases of cumulative counters, resets included."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pdops.model.series import Floats

LOOKBACK_S = 300.0
"""How far before a window the sample may lie that an increase is counted from."""


@dataclass(frozen=True, slots=True)
class Increase:
    """How much a counter grew: `value` over `span_s` seconds, from `n` samples, across `resets` falls to zero."""

    value: float
    span_s: float
    n: int
    resets: int

    @property
    def rate(self) -> float:
        """Growth per second."""
        return self.value / self.span_s


def span(t: Floats, start_s: float, end_s: float, lookback_s: float = LOOKBACK_S) -> slice | None:
    """Return the samples that tell the growth in (start_s, end_s]: the last one at or before the start, and all inside.

    None when no sample lies inside, or only one sample is known at all.
    """
    first, last = int(t.searchsorted(start_s, "right")), int(t.searchsorted(end_s, "right"))
    if last <= first:
        return None
    if first > 0 and t[first - 1] >= start_s - lookback_s:
        first -= 1
    return slice(first, last) if last - first >= 2 else None


def increase(t: Floats, v: Floats, start_s: float, end_s: float) -> Increase | None:
    """Return the growth of a cumulative counter in a window, or None when two samples do not exist.

    A fall means that the process restarted from zero, so the value after it counts in full. What was counted between
    the last sample and the restart is lost; the result is a lower bound then.
    """
    part = span(t, start_s, end_s)
    if part is None:
        return None
    times, values = t[part], v[part]
    steps = values[1:] - values[:-1]
    fell = steps < 0
    resets = int(np.count_nonzero(fell))
    grown = float(np.add.reduce(np.where(fell, values[1:], steps) if resets else steps))
    width = float(times[-1] - times[0])
    return Increase(grown, width, len(values), resets) if width > 0 else None
