"""Columns of samples over time, and the answer to one question about them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Kind(StrEnum):
    """How a signal moves."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """A gauge, a cumulative counter, or one statistic of a histogram over time.

    `t` (Unix seconds, ascending) and `v` have shape (n,). A missing sample is absent, never interpolated.
    """

    kind: Kind
    t: Floats
    v: Floats


@dataclass(frozen=True, slots=True, eq=False)
class HistogramSeries:
    """A cumulative histogram over time.

    `bounds` (m,) are the upper edges, the last one +Inf. `counts` (k, m) are cumulative over edges and over time,
    sampled at `t` (k,). `total` and `sum` are sampled at `sum_t` (n,), which may be more often than the buckets.
    With `rate` True the numbers are already per second and not cumulative over time.
    """

    bounds: Floats
    t: Floats
    counts: Floats
    sum_t: Floats
    sum: Floats
    total: Floats
    rate: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """A span [start_s, end_s] in Unix seconds."""

    start_s: float
    end_s: float

    def __hash__(self) -> int:
        # Answers are remembered by window, and a tuple of both would cost more than the look-up.
        return hash(self.start_s)

    @property
    def span_s(self) -> float:
        """Length in seconds."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Reading:
    """The answer to one question: a number, a bound, or unknown with the reason.

    `value` None means not known and `why` says so; 0 is a measured zero. `bound` "ge" / "le" means the true number is
    at least / at most `value`. `n` counts the samples or events behind it; `missing` names the workers that gave none.
    """

    value: float | None
    bound: Literal["ge", "le"] | None = None
    why: str | None = None
    n: int = 0
    missing: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        """Whether there is a number at all."""
        return self.value is not None

    def above(self, threshold: float) -> bool:
        """Whether the true number is surely above a threshold."""
        return self.value is not None and self.bound != "le" and self.value > threshold

    def below(self, threshold: float) -> bool:
        """Whether the true number is surely below a threshold."""
        return self.value is not None and self.bound != "ge" and self.value < threshold


def unknown(why: str, missing: tuple[str, ...] = ()) -> Reading:
    """Return a Reading that is not known, with the reason."""
    return Reading(None, why=why, missing=missing)
