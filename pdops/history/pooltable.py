"""One line a pool: the numbers that a glance needs, from the same readings as everything else."""

from __future__ import annotations

from dataclasses import dataclass

from pdops.history.readings import Readings
from pdops.model.cluster import Role, pool_key
from pdops.model.series import Reading
from pdops.model.view import Presence, View


@dataclass(frozen=True, slots=True)
class PoolLine:
    """A pool at one moment. Requests are sums over its workers, KV use is the greatest, ratios are 0-1."""

    pool: str
    role: Role
    up: int
    workers: int
    running: Reading
    waiting: Reading
    kv_usage: Reading
    ttft_p95: Reading
    itl_p95: Reading
    prefix_hit_rate: Reading
    kv_bytes_per_s: Reading


def pool_lines(view: View) -> tuple[PoolLine, ...]:
    """Return one line per prefill and decode pool, in inventory order."""
    ask = Readings(view)
    lines = []
    for role in (Role.PREFILL, Role.DECODE, Role.COLOCATED):
        for pool in view.cluster.pools(role):
            key = pool_key(pool)
            members = view.cluster.of_pool(pool)
            up = sum(1 for w in members if w.id in view.health and view.health[w.id].presence in _THERE)
            lines.append(
                PoolLine(
                    pool=pool,
                    role=role,
                    up=up,
                    workers=len(members),
                    running=ask.level(key, "running_requests"),
                    waiting=ask.level(key, "queue_depth"),
                    kv_usage=ask.level(key, "kv_cache_usage"),
                    ttft_p95=ask.quantile(key, "ttft_seconds", 0.95),
                    itl_p95=ask.quantile(key, "itl_seconds", 0.95),
                    prefix_hit_rate=ask.ratio(key, "prefix_cache_hits", "prefix_cache_queries"),
                    kv_bytes_per_s=ask.rate(key, "kv_transfer_bytes"),
                )
            )
    return tuple(lines)


_THERE = (Presence.UP, Presence.GIVEN)
