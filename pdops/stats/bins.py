"""Put samples of different workers on one time grid."""

from __future__ import annotations

import numpy as np

from pdops.model.series import Floats


def grid(start_s: float, end_s: float, width_s: float) -> Floats:
    """Return bin edges (n,) of that width that end at `end_s` and lie in [start_s, end_s]."""
    steps = int((end_s - start_s) / width_s + 1e-9)
    out: Floats = end_s - width_s * np.arange(steps, -1, -1, dtype=np.float64)
    return out


def grown(t: Floats, v: Floats, edges: Floats) -> Floats:
    """Return what a cumulative counter grew by in each bin (n-1,), NaN where it is not known.

    An edge takes the last sample at or before it, if that is younger than one bin. After a fall the value counts in
    full, as after a restart from zero.
    """
    if len(t) == 0:
        return np.full(len(edges) - 1, np.nan)
    place = np.searchsorted(t, edges, side="right") - 1
    there = np.maximum(place, 0)
    width = edges[1] - edges[0] if len(edges) > 1 else 0.0
    known = (place >= 0) & (t[there] > edges - width + 1e-9)
    at_edge = np.where(known, v[there], np.nan)
    steps = np.diff(at_edge)
    out: Floats = np.where(steps < 0, at_edge[1:], steps)
    return out


def averaged(t: Floats, v: Floats, edges: Floats) -> Floats:
    """Return the mean of a gauge's samples in each bin (n-1,), both ends as in (start, end]; NaN where there is none."""
    if len(t) == 0:
        return np.full(len(edges) - 1, np.nan)
    place = np.searchsorted(t, edges, side="right")
    total = np.concatenate([[0.0], np.cumsum(v)])
    n = np.diff(place)
    sums = np.diff(total[place])
    out: Floats = np.where(n > 0, sums / np.maximum(n, 1), np.nan)
    return out
