"""When something began, for methods that must find that out themselves: three odd ticks in a row of what clients feel."""

from __future__ import annotations

import numpy as np

from pdops.bench.baselines.scoring import FLOOR, FLOOR_RATIO, first_excess, rows_of
from pdops.bench.table import Table

LIMIT = 4.0
"""Interquartile ranges from the median beyond which a tick is odd; 4 of them are about 3 sigma twice over."""
TICKS = 3
WATCHED = (("client", "ttft_seconds"), ("client", "itl_seconds"), ("client", "request_failure"))
_SPARE = (("decode", "ttft_seconds"), ("decode", "itl_seconds"))
LEARN_RATIO = 0.35
"""Share of the table that is taken as sound at the beginning."""


def onset(table: Table) -> float | None:
    """Return when clients began to feel it, in Unix seconds, or None when they did not."""
    if len(table.t) < 2 * TICKS:
        return None
    learned_s = float(table.t[0] + (table.t[-1] - table.t[0]) * LEARN_RATIO)
    found: list[float] = []
    for number in rows_of(table, WATCHED) or rows_of(table, _SPARE):
        line = table.values[number]
        before = line[(table.t <= learned_s) & ~np.isnan(line)]
        if len(before) < TICKS:
            continue
        low, centre, high = np.percentile(before, (25, 50, 75))
        spread = max(high - low, abs(centre) * FLOOR_RATIO, FLOOR)
        with np.errstate(invalid="ignore"):
            began = first_excess((line - centre) / spread, table.t, learned_s, LIMIT, TICKS)
        if began is not None:
            found.append(began - (TICKS - 1) * float(np.median(np.diff(table.t))))
    return min(found) if found else None
