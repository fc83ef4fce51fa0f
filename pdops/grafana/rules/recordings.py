"""What dashboards and alerts ask for again and again, computed once: by pool, worker and pair."""

from __future__ import annotations

from pdops.grafana.rules.promql import by, per_cluster, per_pool, per_worker
from pdops.grafana.rules.types import CLUSTER, PAIR, POOL, WORKER, Group, Recording

QUANTILES = (0.5, 0.95, 0.99)
_ENGINE = '{role=~"prefill|decode|colocated"}'
_HISTOGRAMS = ("ttft", "itl", "e2e", "queue", "prefill", "decode")


def groups() -> tuple[Group, ...]:
    """Return the groups of recording rules."""
    return (
        Group(name="pdops-pools", recordings=_pools()),
        Group(name="pdops-workers", recordings=_workers()),
        Group(name="pdops-pairs", recordings=_pairs()),
        Group(name="pdops-clients", recordings=_clients()),
    )


def _pools() -> tuple[Recording, ...]:
    found = [
        Recording(
            name="pool:pdops_worker_up:ratio",
            expr=per_pool(f"pdops_worker_up{_ENGINE}"),
            keeps=POOL,
        ),
        Recording(
            name="pool:pdops_queue_requests:sum",
            expr=by((*POOL, "reason"), f"pdops_queue_requests{_ENGINE}", "sum"),
            keeps=(*POOL, "reason"),
        ),
        Recording(
            name="pool:pdops_queue_capacity_requests:avg",
            expr=per_pool(
                per_worker('pdops_queue_requests{role=~"prefill|decode|colocated",reason=~"capacity|any"}', "sum")
            ),
            keeps=POOL,
        ),
        Recording(
            name="pool:pdops_running_requests:avg",
            expr=per_pool(f"pdops_running_requests{_ENGINE}"),
            keeps=POOL,
        ),
        Recording(
            name="pool:pdops_kv_cache_usage:max",
            expr=per_pool(f"pdops_kv_cache_usage{_ENGINE}", "max"),
            keeps=POOL,
        ),
    ]
    for counter in ("prompt_tokens", "generated_tokens", "kv_generated_bytes", "kv_transfer_bytes", "preemptions"):
        found.append(
            Recording(
                name=f"pool:pdops_{counter}:rate5m",
                expr=per_pool(f"rate(pdops_{counter}_total{_ENGINE}[5m])", "sum"),
                keeps=POOL,
            )
        )
    for window in ("5m", "15m"):
        hits, asked = (
            by((*POOL, "tier"), f"rate(pdops_prefix_cache_{what}_tokens_total{_ENGINE}[{window}])", "sum")
            for what in ("hit", "query")
        )
        found.append(
            Recording(
                name=f"pool:pdops_prefix_cache_hit:ratio_rate{window}",
                expr=f"{hits} / ({asked} > 0)",
                keeps=(*POOL, "tier"),
            )
        )
    for name in _HISTOGRAMS:
        rate = by((*POOL, "le"), f"rate(pdops_{name}_seconds_bucket{_ENGINE}[5m])", "sum")
        found.append(
            Recording(name=f"pool:pdops_{name}_seconds_bucket:rate5m", expr=rate, keeps=(*POOL, "le")),
        )
        for q in QUANTILES:
            found.append(
                Recording(
                    name=f"pool:pdops_{name}_seconds:p{q * 100:.0f}",
                    expr=f"histogram_quantile({q:g}, pool:pdops_{name}_seconds_bucket:rate5m)",
                    keeps=POOL,
                )
            )
    return tuple(found)


def _workers() -> tuple[Recording, ...]:
    moved = per_worker(f"rate(pdops_kv_transfer_bytes_total{_ENGINE}[5m])")
    took = per_worker(f"rate(pdops_kv_transfer_seconds_sum{_ENGINE}[5m])")
    count = per_worker(f"rate(pdops_kv_transfer_seconds_count{_ENGINE}[5m])")
    local = per_worker('rate(pdops_local_prefill_tokens_total{role="decode"}[5m])')
    prompts = per_worker('rate(pdops_prompt_tokens_total{role="decode"}[5m])')
    gaps = per_worker('rate(pdops_itl_seconds_sum{role="decode"}[5m])')
    tokens = per_worker('rate(pdops_itl_seconds_count{role="decode"}[5m])')
    return (
        Recording(name="worker:pdops_kv_transfer_seconds_count:rate5m", expr=count, keeps=WORKER),
        Recording(
            name="worker:pdops_kv_transfer_bandwidth_bytes_per_second:mean5m",
            expr=f"{moved} / ({took} > 0)",
            keeps=WORKER,
        ),
        Recording(
            name="worker:pdops_kv_transfer_seconds:mean5m",
            expr=f"{took} / ({count} > 0)",
            keeps=WORKER,
        ),
        Recording(name="worker:pdops_local_prefill:ratio_rate5m", expr=f"{local} / ({prompts} > 0)", keeps=WORKER),
        Recording(name="worker:pdops_itl_seconds:mean5m", expr=f"{gaps} / ({tokens} > 0)", keeps=WORKER),
        Recording(
            name="worker:pdops_request_success:rate5m",
            expr=per_worker(f"rate(pdops_request_success_total{_ENGINE}[5m])"),
            keeps=WORKER,
        ),
    )


def _pairs() -> tuple[Recording, ...]:
    moved = by(PAIR, "rate(pdops_pair_kv_transfer_bytes_total[5m])")
    took = by(PAIR, "rate(pdops_pair_kv_transfer_seconds_sum[5m])")
    found = [
        Recording(name="pair:pdops_kv_transfer_bytes:rate5m", expr=moved, keeps=PAIR),
        Recording(
            name="pair:pdops_kv_transfer_bandwidth_bytes_per_second:mean5m",
            expr=f"{moved} / ({took} > 0)",
            keeps=PAIR,
        ),
        Recording(
            name="pair:pdops_kv_transfer_failures:rate5m",
            expr=by(PAIR, "rate(pdops_pair_kv_transfer_failures_total[5m])"),
            keeps=PAIR,
        ),
    ]
    for name in ("kv_transfer", "handoff"):
        rate = by((*PAIR, "le"), f"rate(pdops_pair_{name}_seconds_bucket[5m])", "sum")
        found.append(
            Recording(name=f"pair:pdops_{name}_seconds:p95", expr=f"histogram_quantile(0.95, {rate})", keeps=PAIR)
        )
    return tuple(found)


def _clients() -> tuple[Recording, ...]:
    # Routers other than pdops' own count a router's requests as those of a worker with the role router.
    ok, bad = (
        per_cluster(f"rate(pdops_client_request_{what}_total[5m])")
        + " or "
        + per_cluster(f'rate(pdops_request_{what}_total{{role="router"}}[5m])')
        for what in ("success", "failure")
    )
    found = [
        Recording(name="cluster:pdops_client_request_success:rate5m", expr=ok, keeps=CLUSTER),
        Recording(name="cluster:pdops_client_request_failure:rate5m", expr=bad, keeps=CLUSTER),
    ]
    for name in ("ttft", "itl", "e2e"):
        rate = by((*CLUSTER, "le"), f"rate(pdops_client_{name}_seconds_bucket[5m])", "sum")
        for q in QUANTILES:
            found.append(
                Recording(
                    name=f"cluster:pdops_client_{name}_seconds:p{q * 100:.0f}",
                    expr=f"histogram_quantile({q:g}, {rate})",
                    keeps=CLUSTER,
                )
            )
    return tuple(found)
