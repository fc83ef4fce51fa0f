"""Alerts on the KV store, caches, the balance of pools and their GPUs."""

from __future__ import annotations

from pdops.grafana.rules.promql import on, per_cluster, per_worker, series, worker
from pdops.grafana.rules.types import CLUSTER, POOL, WORKER, Alert, Group, Value

_HITS = 'pool:pdops_prefix_cache_hit:ratio_rate15m{role="prefill"}'
_STORE_UP = per_worker('pdops_worker_up{role="kvstore"}')


def groups() -> tuple[Group, ...]:
    """Return the groups."""
    return (
        Group(name="pdops-store-alerts", alerts=_STORE),
        Group(name="pdops-capacity-alerts", alerts=_CAPACITY),
    )


_STORE = (
    Alert(
        name="PDKvStoreDown",
        expr=f"{_STORE_UP} == 0 or {per_worker('pdops_kvstore_up')} == 0",
        for_="1m",
        summary="KV store {{ $labels.worker }} of {{ $labels.cluster }} does not answer or does not serve",
        do="Prompts are computed again instead of being loaded; requests should still end well. Bypass the store if they wait "
        "for it.",
        check="kvstore/down",
        cause="kvstore-down",
        board="capacity",
        inputs={
            worker("pdops_worker_up", "kvstore"): (1, 0),
            worker("pdops_worker_up", "decode"): 0,
        },
        names={"worker": "kvstore-0"},
        optional=frozenset({worker("pdops_worker_up", "decode")}),
        more={
            "it answers and says that it does not serve": (
                {worker("pdops_worker_up", "kvstore"): 1, worker("pdops_kvstore_up", "kvstore"): 0},
                True,
            ),
            "it answers and serves": (
                {worker("pdops_worker_up", "kvstore"): 1, worker("pdops_kvstore_up", "kvstore"): 1},
                False,
            ),
        },
    ),
    Alert(
        name="PDKvStoreFull",
        expr=f"{per_worker('pdops_kvstore_fill_ratio')} > 0.9 and {on(WORKER)} "
        f"({per_worker('rate(pdops_kvstore_evictions_total[5m])')} > 0 or "
        f"{per_worker('rate(pdops_kvstore_alloc_failures_total[5m])')} > 0)",
        summary="KV store {{ $labels.worker }} of {{ $labels.cluster }} is full: it evicts or refuses writes",
        do="Add a segment or a tier, or store less: raise the length from which a prefix is stored.",
        check="kvstore/full",
        cause="kvstore-full",
        board="capacity",
        inputs={
            worker("pdops_kvstore_fill_ratio", "kvstore"): (0.9, 0.91),
            worker("pdops_kvstore_evictions_total", "kvstore"): 1,
        },
        names={"worker": "kvstore-0"},
        more={
            "full and nothing pushed out": (
                {
                    worker("pdops_kvstore_fill_ratio", "kvstore"): 0.99,
                    worker("pdops_kvstore_evictions_total", "kvstore"): 0,
                },
                False,
            ),
            "full and writes are refused": (
                {
                    worker("pdops_kvstore_fill_ratio", "kvstore"): 0.99,
                    worker("pdops_kvstore_alloc_failures_total", "kvstore"): 0.1,
                },
                True,
            ),
        },
    ),
    Alert(
        name="PDPrefixHitRateFell",
        expr=f"{_HITS} < 0.5 * ({_HITS} offset 1h > 0.1)",
        keeps=(*POOL, "tier"),
        for_="10m",
        summary="The {{ $labels.tier }} prefix cache of {{ $labels.cluster }} hits half as often as an hour ago",
        do="Look for a restart, an eviction storm or a router that lost its index; other prompts do it as well. Prefill may be "
        "short until the cache is warm again.",
        check="kvstore/prefix-collapse",
        cause="prefix-cache-collapse",
        board="prefill",
        inputs={
            worker("pdops_prefix_cache_hit_tokens_total", "prefill", tier="local"): (
                "0+30000x75 2250000+15300x75",
                "0+30000x75 2250000+14700x75",
            ),
            worker("pdops_prefix_cache_query_tokens_total", "prefill", tier="local"): 1000,
        },
        names={"pool": "prefill", "tier": "local"},
        horizon_m=110,
        more={
            "there was little to lose": (
                {
                    worker("pdops_prefix_cache_hit_tokens_total", "prefill", tier="local"): "0+5400x75 405000+0x75",
                    worker("pdops_prefix_cache_query_tokens_total", "prefill", tier="local"): 1000,
                },
                False,
            ),
            "there was something to lose": (
                {
                    worker("pdops_prefix_cache_hit_tokens_total", "prefill", tier="local"): "0+6600x75 495000+0x75",
                    worker("pdops_prefix_cache_query_tokens_total", "prefill", tier="local"): 1000,
                },
                True,
            ),
        },
    ),
)
_QUEUE, _RUNNING, _KV = (
    f"pool:pdops_{what}" for what in ("queue_capacity_requests:avg", "running_requests:avg", "kv_cache_usage:max")
)


def _pool(metric: str, role: str, how: str) -> str:
    return per_cluster(f'{metric}{{role="{role}"}}', how)


def _short_prefill(decode_kv_ratio: float, decode_waits: float) -> dict[str, Value]:
    """Return test series of a prefill pool that is short."""
    return {
        worker("pdops_queue_requests", "prefill", reason="capacity"): 5,
        worker("pdops_queue_requests", "decode", reason="capacity"): decode_waits,
        worker("pdops_kv_cache_usage", "decode"): decode_kv_ratio,
    }


def _short_decode(prefill_runs: float, prefill_waits: float) -> dict[str, Value]:
    """Return test series of a decode pool that is short."""
    return {
        worker("pdops_queue_requests", "decode", reason="capacity"): 5,
        worker("pdops_queue_requests", "prefill", reason="capacity"): prefill_waits,
        worker("pdops_running_requests", "prefill"): prefill_runs,
    }


_CAPACITY = (
    Alert(
        name="PDPoolRatio",
        expr=f"{_pool(_QUEUE, 'prefill', 'max')} > 2 and {on(CLUSTER)} {_pool(_KV, 'decode', 'max')} < 0.3 and {on(CLUSTER)} "
        f"{_pool(_QUEUE, 'decode', 'max')} < 1",
        keeps=CLUSTER,
        for_="10m",
        summary="Prefill of {{ $labels.cluster }} is short while decode has nothing to do",
        do="Move workers from decode to prefill, one at a time, and look again after each.",
        check="capacity/ratio",
        cause="ratio-wrong",
        pool="prefill",
        board="capacity",
        labels={"short": "prefill"},
        inputs={
            worker("pdops_queue_requests", "prefill", reason="capacity"): (2, 2.1),
            worker("pdops_queue_requests", "decode", reason="capacity"): 0,
            worker("pdops_kv_cache_usage", "decode"): 0.1,
        },
        names={"cluster": "c1"},
        more={
            "decode is used": (_short_prefill(0.31, 0), False),
            "decode queues as well": (_short_prefill(0.1, 1), False),
            "decode is hardly used": (_short_prefill(0.29, 0.9), True),
        },
    ),
    Alert(
        name="PDPoolRatio",
        expr=f"{_pool(_QUEUE, 'decode', 'max')} > 1 and {on(CLUSTER)} {_pool(_RUNNING, 'prefill', 'max')} < 0.3 and "
        f"{on(CLUSTER)} {_pool(_QUEUE, 'prefill', 'max')} < 1",
        keeps=CLUSTER,
        for_="10m",
        summary="Decode of {{ $labels.cluster }} is short while prefill has nothing to do",
        do="Move workers from prefill to decode, one at a time, and look again after each.",
        check="capacity/ratio",
        cause="ratio-wrong",
        pool="decode",
        board="capacity",
        labels={"short": "decode"},
        inputs={
            worker("pdops_queue_requests", "decode", reason="capacity"): (1, 1.1),
            worker("pdops_queue_requests", "prefill", reason="capacity"): 0,
            worker("pdops_running_requests", "prefill"): 0,
        },
        names={"cluster": "c1"},
        more={
            "prefill is used": (_short_decode(0.31, 0), False),
            "prefill queues as well": (_short_decode(0.1, 1), False),
            "prefill is hardly used": (_short_decode(0.29, 0.9), True),
        },
    ),
    Alert(
        name="PDGpuThrottled",
        expr="max by (gpu, uuid, role, worker, reason) "
        '(pdops_gpu_clock_event{reason=~"hardware-slowdown|hardware-thermal|hardware-power-brake"}) == 1',
        keeps=("gpu", "uuid", "role", "worker", "reason"),
        summary="GPU {{ $labels.gpu }} of {{ $labels.worker }} is held down: {{ $labels.reason }}",
        do="Look at cooling and power of that node, and cordon the worker: one slow worker makes a pool's tail.",
        cause="gpu-throttle",
        pool="all",
        board="capacity",
        inputs={
            series(
                "pdops_gpu_clock_event",
                gpu="0",
                uuid="GPU-0",
                name="n",
                role="decode",
                worker="decode-0",
                reason="hardware-thermal",
            ): (0, 1)
        },
        names={"worker": "decode-0", "reason": "hardware-thermal"},
    ),
)
