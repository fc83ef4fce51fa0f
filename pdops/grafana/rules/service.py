"""Alerts on what clients get, on the router, the KV store and the balance of pools."""

from __future__ import annotations

from pdops.grafana.rules.promql import client, cluster, on, per_cluster, per_pool, per_worker, series, worker
from pdops.grafana.rules.types import CLUSTER, POOL, WORKER, Alert, Group, Value
from pdops.model.report import Symptom

_OK, _BAD = "cluster:pdops_client_request_success:rate5m", "cluster:pdops_client_request_failure:rate5m"
_GIVEN_UP = " + ".join(
    f"({per_cluster(f'rate(pdops_client_{what}_total[5m])')} or 0 * {_OK})" for what in ("aborts", "request_timeouts")
)
_HITS = 'pool:pdops_prefix_cache_hit:ratio_rate15m{role="prefill"}'
_STORE_UP = per_worker('pdops_worker_up{role="kvstore"}')
_TRAFFIC = 'worker:pdops_request_success:rate5m{role=~"prefill|decode"}'


def groups() -> tuple[Group, ...]:
    """Return the groups."""
    return (
        Group(name="pdops-client-alerts", alerts=_CLIENTS),
        Group(name="pdops-router-alerts", alerts=_ROUTER),
        Group(name="pdops-store-alerts", alerts=_STORE),
        Group(name="pdops-capacity-alerts", alerts=_CAPACITY),
    )


_CLIENTS = (
    Alert(
        name="PDRequestsFailing",
        expr=f"{_BAD} / (({_OK} or 0 * {_BAD}) + {_BAD}) > 0.01",
        keeps=CLUSTER,
        for_="2m",
        severity="critical",
        summary="More than 1 % of the requests to {{ $labels.cluster }} fail, end empty or are turned away",
        do="Counted at the router as clients saw it. `pdops diagnose` names the layer; do not raise retries before it does.",
        symptom=Symptom.ERRORS,
        pool="router",
        inputs={
            client("pdops_client_request_failure_total"): (0.99, 1.01),
            client("pdops_client_request_success_total"): 99,
        },
        names={"cluster": "c1"},
        optional=frozenset({client("pdops_client_request_success_total")}),
    ),
    Alert(
        name="PDAbortStorm",
        expr=f"({_GIVEN_UP}) / ({_OK} > 0) > 0.01",
        keeps=CLUSTER,
        summary="More than 1 % of the requests to {{ $labels.cluster }} are given up before they are done",
        do="Compare every timeout on the way with how long the work takes. Each one given up leaves KV on prefill until its "
        "lease ends; retries add to it.",
        check="client/abort-storm",
        cause="timeout-too-short",
        pool="router",
        inputs={
            client("pdops_client_aborts_total"): (0.49, 0.51),
            client("pdops_client_request_timeouts_total"): 0.5,
            client("pdops_client_request_success_total"): 100,
        },
        names={"cluster": "c1"},
        more={
            "a router that counts no aborts": (
                {
                    client("pdops_client_request_timeouts_total"): 2,
                    client("pdops_client_request_success_total"): 100,
                },
                True,
            ),
            "a router that counts no timeouts": (
                {client("pdops_client_aborts_total"): 2, client("pdops_client_request_success_total"): 100},
                True,
            ),
        },
    ),
    Alert(
        name="PDGoodputFalling",
        expr=per_cluster('pdops_symptom{symptom="goodput-falling-points-normal"}', "max") + " == 1",
        keeps=CLUSTER,
        summary="Fewer requests of {{ $labels.cluster }} end in time although no single number is bad",
        do="Look at what moved together: `pdops diagnose`. Usually the ratio of the pools no longer fits, or load is uneven.",
        symptom=Symptom.GOODPUT,
        pool="all",
        board="diagnosis",
        inputs={cluster("pdops_symptom", symptom="goodput-falling-points-normal"): (0, 1)},
        names={"cluster": "c1"},
    ),
    Alert(
        name="PDProbeFailed",
        expr="max by (cluster, model, kind, target) (pdops_probe_success) == 0",
        keeps=(*CLUSTER, "kind", "target"),
        for_="0m",
        severity="critical",
        summary="The {{ $labels.kind }} probe of {{ $labels.target }} in {{ $labels.cluster }} failed",
        do="A canary with the wrong text means wrong answers with HTTP 200: take that pair out, then look at leases and at what "
        "must match between its sides.",
        symptom=Symptom.WRONG_ANSWERS,
        pool="all",
        inputs={cluster("pdops_probe_success", kind="canary", target="prefill-0>decode-0"): (1, 0)},
        names={"kind": "canary", "target": "prefill-0>decode-0"},
    ),
)


def _uneven(running: float) -> dict[str, Value]:
    """Return test series of two decode workers that get two and one request a second."""
    return {
        worker("pdops_request_success_total", "decode"): 2,
        worker("pdops_request_success_total", "decode", "decode-1"): 1,
        worker("pdops_running_requests", "decode"): running,
    }


_ROUTER = (
    Alert(
        name="PDRouterExcludesHealthy",
        expr="max by (cluster, model, worker) (pdops_router_view_worker_health) == 0 and on (cluster, model, worker) "
        "max by (cluster, model, worker) (pdops_worker_up) == 1",
        keeps=(*CLUSTER, "worker"),
        for_="2m",
        summary="The router of {{ $labels.cluster }} leaves out {{ $labels.worker }}, which answers",
        do="Its health page, its name or the way from the router to it is at fault. Do not restart the worker.",
        check="router/excludes-healthy",
        cause="health-check-misfire",
        pool="router",
        inputs={
            cluster("pdops_router_view_worker_health", router="router-0", worker="decode-0"): (1, 0),
            worker("pdops_worker_up", "decode"): 1,
        },
        names={"worker": "decode-0"},
    ),
    Alert(
        name="PDLoadSkew",
        expr=f"{per_pool(_TRAFFIC, 'max')} > 1.3 * {per_pool(_TRAFFIC)} and {on(POOL)} "
        "pool:pdops_running_requests:avg >= 2",
        keeps=POOL,
        for_="10m",
        summary="One worker of pool {{ $labels.pool }} in {{ $labels.cluster }} gets 30 % more than the mean",
        do="Read the router's policy, weights and session stickiness; one hot prefix draws requests to few workers as well. "
        "Scaling out does not even it out.",
        check="router/imbalance",
        cause="router-imbalance",
        inputs={
            worker("pdops_request_success_total", "decode"): (1.29, 1.31),
            worker("pdops_request_success_total", "decode", "decode-1"): (0.71, 0.69),
            worker("pdops_running_requests", "decode"): 4,
        },
        names={"pool": "decode"},
        more={
            "so few requests that one more makes the skew": (_uneven(1.9), False),
            "just enough requests": (_uneven(2), True),
        },
    ),
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
