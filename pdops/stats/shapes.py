"""How two histograms differ: by how much, and whether as a whole or by a part that stands apart."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from pdops.model.series import Floats

MIN_EVENTS = 50.0
"""Fewer events on either side make the differences below mostly chance."""
MOVED = 0.25
"""Population stability index above which two distributions differ (the usual rule of credit scoring: 0.1 some, 0.25 much)."""
_STAYED = 0.4
"""Least share of events that must have kept their place for the rest to count as a part that stands apart."""
_APART = 0.03
"""Least share of events that a part must have."""
_SIGNIFICANCE = 1.63
"""Kolmogorov-Smirnov's c(alpha) at one in a hundred."""


class Move(StrEnum):
    """What became of a distribution."""

    SAME = "same"
    SHIFTED = "shifted"
    SPLIT = "split"


@dataclass(frozen=True, slots=True)
class Difference:
    """Population stability index, Kolmogorov-Smirnov distance (0-1), the kind of move and the share that went up (0-1)."""

    psi: float
    ks: float
    move: Move
    up: float


def shares(counts: Floats) -> Floats:
    """Return the share (0-1) of events in each bucket of cumulative counts (m,)."""
    steps = np.diff(counts, prepend=0.0)
    total = float(steps.sum())
    out: Floats = steps / total if total > 0 else steps
    return out


def psi(now: Floats, before: Floats, n_now: float, n_before: float) -> float:
    """Return the population stability index of two bucket shares (m,); half an event stands for an empty bucket."""
    a = np.maximum(now, 0.5 / n_now)
    b = np.maximum(before, 0.5 / n_before)
    used = (now > 0) | (before > 0)
    return float(np.sum((a - b)[used] * np.log(a[used] / b[used])))


def ks(now: Floats, before: Floats) -> float:
    """Return the Kolmogorov-Smirnov distance of two bucket shares (m,) with the same edges: a lower bound of the true one."""
    return float(np.max(np.abs(np.cumsum(now) - np.cumsum(before)))) if len(now) else 0.0


def difference(now: Floats, before: Floats) -> Difference | None:
    """Compare cumulative bucket counts (m,) of the same edges; None when either has fewer than `MIN_EVENTS`.

    SPLIT when most events kept their buckets and a part went at least two buckets up with a gap between: one of several
    peers, or one kind of request, behaves differently. SHIFTED when the bulk itself moved.
    """
    n, m = (float(c[-1]) if len(c) else 0.0 for c in (now, before))
    if min(n, m) < MIN_EVENTS or len(now) != len(before):
        return None
    a, b = shares(now), shares(before)
    size, distance = psi(a, b, n, m), ks(a, b)
    up = float(np.max(np.cumsum(b) - np.cumsum(a), initial=0.0))
    significant = distance > _SIGNIFICANCE * np.sqrt((n + m) / (n * m))
    if size < MOVED or not significant:
        return Difference(size, distance, Move.SAME, up)
    return Difference(size, distance, Move.SPLIT if _split(a, b) else Move.SHIFTED, up)


def _split(now: Floats, before: Floats) -> bool:
    top = _last_used(before)
    stayed = float(np.minimum(now, before)[: top + 1].sum())
    beyond = float(now[top + 2 :].sum())
    between = float(now[top + 1 : top + 2].sum())
    return stayed >= _STAYED and beyond >= _APART and between < beyond


def _last_used(part: Floats) -> int:
    """Return the bucket below which all but a hundredth of the events are."""
    return int(np.searchsorted(np.cumsum(part), 0.99))
