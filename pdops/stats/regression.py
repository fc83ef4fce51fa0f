"""Lines through data with a few bad points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pdops.model.series import Floats
from pdops.stats.robust import MAD_TO_SIGMA

_HUBER = 1.345
"""Residuals beyond this many standard deviations weigh less (Huber 1964: 95 % as efficient as least squares)."""
_ROUNDS = 12
_RIDGE = 1e-3
"""Pull of each slope towards zero, as a share of the variance: a driver that did not move gets no slope."""
MIN_POINTS = 12


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """y = intercept + slopes . x, fitted where each driver lay between `low` and `high` (k,)."""

    intercept: float
    slopes: Floats
    low: Floats
    high: Floats

    def at(self, x: Floats) -> Floats:
        """Return the expected y (n,) at drivers x (n, k)."""
        answer: Floats = self.intercept + x @ self.slopes
        return answer


def fit(x: Floats, y: Floats) -> Plane | None:
    """Return Huber's robust plane through x (n, k) and y (n,), or None with fewer than `MIN_POINTS` points.

    Iteratively reweighted least squares from the median, on drivers scaled to unit variance.
    """
    if len(y) < MIN_POINTS:
        return None
    centre, scale = x.mean(axis=0), x.std(axis=0)
    moved = scale > 1e-9 * np.maximum(np.abs(centre), 1e-12)
    unit = np.where(moved, scale, 1.0)
    design = np.column_stack([np.ones(len(y)), np.where(moved, (x - centre) / unit, 0.0)])
    ridge = np.diag([0.0, *([_RIDGE * len(y)] * x.shape[1])])
    beta = np.zeros(design.shape[1])
    beta[0] = float(np.median(y))
    for _ in range(_ROUNDS):
        residual = y - design @ beta
        spread = MAD_TO_SIGMA * float(np.median(np.abs(residual - np.median(residual))))
        if spread <= 1e-12 * max(1.0, abs(float(beta[0]))):
            break
        weight = np.minimum(1.0, _HUBER * spread / np.maximum(np.abs(residual), 1e-300))
        heavy = design * weight[:, None]
        # A driver without any spread leaves an empty row; lstsq answers zero for it.
        beta = np.linalg.lstsq(design.T @ heavy + ridge, heavy.T @ y, rcond=None)[0]
    slopes = np.where(moved, beta[1:] / unit, 0.0)
    return Plane(float(beta[0] - slopes @ centre), slopes, x.min(axis=0), x.max(axis=0))
