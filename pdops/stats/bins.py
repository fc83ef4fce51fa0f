"""Put samples of different workers on one time grid."""

from __future__ import annotations

import numpy as np

from pdops.model.series import Floats


def grid(start_s: float, end_s: float, width_s: float) -> Floats:
    """Return bin edges (n,) of that width that end at `end_s` and lie in [start_s, end_s]."""
    steps = int((end_s - start_s) / width_s + 1e-9)
    out: Floats = end_s - width_s * np.arange(steps, -1, -1, dtype=np.float64)
    return out


Place = tuple[np.ndarray, np.ndarray]
"""For each edge the sample that tells it, and whether it is young enough to."""


def places(t: Floats, edges: Floats) -> Place:
    """Return for each edge the last sample at or before it, and whether there is one younger than one bin."""
    if len(t) == 0:
        return np.zeros(len(edges), dtype=np.intp), np.zeros(len(edges), dtype=bool)
    place = t.searchsorted(edges, "right") - 1
    there = np.maximum(place, 0)
    width = edges[1] - edges[0] if len(edges) > 1 else 0.0
    return there, (place >= 0) & (t[there] > edges - width + 1e-9)


def grown(v: Floats, place: Place) -> Floats:
    """Return what a cumulative counter grew by in each bin (n-1,), NaN where it is not known.

    After a fall the value counts in full, as after a restart from zero.
    """
    there, known = place
    if len(v) == 0:
        return np.full(len(there) - 1, np.nan)
    at_edge = np.where(known, v[there], np.nan)
    steps = at_edge[1:] - at_edge[:-1]
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
