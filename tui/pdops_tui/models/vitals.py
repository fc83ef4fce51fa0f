"""The vital signs of a worker or pool: each column's number now, beside its pool, and over time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pdops.model.cluster import Role, pool_key
from pdops.stats.robust import median
from pdops_tui.models import trend
from pdops_tui.models.ask import Ask
from pdops_tui.models.columns import COLUMNS, Column
from pdops_tui.models.format import Cell
from pdops_tui.models.text import clean
from pdops_tui.models.trend import Trend

_MANY = 64
"""In a pool of more workers only so many are asked for a median: every k-th."""
Over = Callable[[Ask, str, int], Trend]


def _gauge(signal: str) -> Over:
    return lambda ask, scope, bins: trend.gauge(ask, scope, signal, bins)


def _rate(signal: str) -> Over:
    return lambda ask, scope, bins: trend.rate(ask, scope, signal, bins)


def _quantile(signal: str, q: float) -> Over:
    return lambda ask, scope, bins: trend.percentile(ask, scope, signal, q, bins)


OVER: dict[str, Over] = {
    "run": _gauge("running_requests"),
    "wait": _gauge("queue_depth"),
    "reason": _gauge("queue_depth_capacity"),
    "queue": _quantile("queue_seconds", 0.95),
    "prompt": _rate("prompt_tokens"),
    "hit": _rate("prefix_cache_hits"),
    "kv": _gauge("kv_cache_usage"),
    "expired": _rate("kv_transfer_expired"),
    "held": _gauge("kv_exports_outstanding"),
    "fetch": _gauge("transfer_queue_depth"),
    "ttft": _quantile("ttft_seconds", 0.95),
    "itl": _quantile("itl_seconds", 0.95),
    "kvin": _rate("kv_transfer_bytes"),
    "xfer": _quantile("kv_transfer_seconds", 0.99),
    "failed": _rate("kv_transfer_failures"),
    "preempt": _rate("preemptions"),
    "local": _rate("local_prefill_tokens"),
}
"""What stands over time behind a column; a ratio of counters is shown by the counter it is made of."""


@dataclass(frozen=True, slots=True)
class Vital:
    """One vital sign: its column, the number now, the pool's median and the ratio to it, and how it moved.

    `median` and `ratio` are None where there are no peers, or nothing is known of them.
    """

    column: Column
    now: Cell
    median: float | None
    ratio: float | None
    over: Trend


def vitals(ask: Ask, role: Role, scope: str, bins: int, *, peers: tuple[str, ...] = ()) -> tuple[Vital, ...]:
    """Return the vital signs of a worker, or of a pool by its key."""
    step = max(1, len(peers) // _MANY)
    asked = [p for p in peers[::step] if p != scope]
    out = []
    for column in COLUMNS.get(role, ()):
        now = column.make(ask, scope)
        known = [v for p in asked if (v := column.make(ask, p).sort) is not None]
        middle = median(known) if known else None
        ratio = now.sort / middle if middle and now.sort is not None else None
        out.append(Vital(column, now, middle, ratio, OVER[column.key](ask, scope, bins)))
    return tuple(out)


def lacking(ask: Ask, role: Role, pool: str) -> tuple[tuple[str, str], ...]:
    """Return the columns of which a pool says nothing, each with the reason."""
    made = ((c.title, c.make(ask, pool_key(pool))) for c in COLUMNS.get(role, ()))
    return tuple((title, clean(cell.why)) for title, cell in made if cell.sort is None)
