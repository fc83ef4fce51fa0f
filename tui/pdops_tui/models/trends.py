"""The few signals that the main screen shows over time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pdops.model.cluster import CLIENT, Role, pool_key
from pdops_tui.models import trend
from pdops_tui.models.ask import Ask
from pdops_tui.models.format import Form, per_second, percent, seconds
from pdops_tui.models.trend import Trend

BINS = 60
_MANY = 256
"""In larger pools buckets of every worker are not added up at every tick: the header has their percentile now."""


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One signal over time: its label, how its numbers are written, the limit it should stay below, and where it is from."""

    label: str
    over: Trend
    form: Form
    limit: float | None = None
    where: str = ""


def trends(ask: Ask) -> tuple[Line, ...]:
    """Return latencies as clients see them, else as decode does, then load, queue and KV."""
    out = [
        _latency(ask, "TTFT", "ttft_seconds", ask.slo.ttft_s),
        _latency(ask, "ITL", "itl_seconds", ask.slo.itl_s),
    ]
    if ask.read.has(CLIENT, "request_success"):
        out.append(Line("requests ok/s", trend.rate(ask, CLIENT, "request_success", BINS), per_second, None, "client"))
    else:
        over = _pools(ask, Role.DECODE, lambda key: trend.rate(ask, key, "request_success", BINS), sums=True)
        out.append(Line("requests ok/s", over, per_second, None, "decode"))
    queue = _pools(ask, Role.PREFILL, lambda key: trend.gauge(ask, key, "queue_depth", BINS), sums=True)
    out.append(Line("prefill queue", queue, per_second, None, "prefill"))
    full = _pools(ask, Role.DECODE, lambda key: trend.gauge(ask, key, "kv_cache_usage", BINS), sums=False)
    out.append(Line("decode KV%", full, percent, None, "fullest"))
    return tuple(out)


def _latency(ask: Ask, name: str, signal: str, limit: float | None) -> Line:
    q = ask.slo.percentile
    label = f"{name} p{q * 100:g}"
    if ask.read.has(CLIENT, signal) or ask.read.has(CLIENT, f"{signal}.p{round(q * 100)}"):
        return Line(label, trend.percentile(ask, CLIENT, signal, q, BINS), seconds, limit, "client")
    pools = ask.view.cluster.pools(Role.DECODE)
    if len(ask.view.cluster.of_role(Role.DECODE)) > _MANY or not pools:
        return Line(label, _blank(ask), seconds, limit, "decode")
    over = _pools(ask, Role.DECODE, lambda key: trend.percentile(ask, key, signal, q, BINS), sums=False)
    return Line(label, over, seconds, limit, "decode")


def _pools(ask: Ask, role: Role, over: Callable[[str], Trend], *, sums: bool) -> Trend:
    """Return what the pools of a role are together: added up, or the greatest of them."""
    found = [over(pool_key(p)) for p in ask.view.cluster.pools(role)]
    if not found:
        return _blank(ask)
    table = np.array([f.values for f in found])
    blank = ~np.isfinite(table).any(axis=0)
    filled = np.nan_to_num(table, nan=0.0 if sums else -np.inf)
    values = np.where(blank, np.nan, filled.sum(axis=0) if sums else filled.max(axis=0))
    return Trend(values, found[0].start_s, found[0].end_s, found[0].unit)


def _blank(ask: Ask) -> Trend:
    at = trend.edges(ask, 1)
    return Trend(np.array([np.nan]), float(at[0]), float(at[-1]))
