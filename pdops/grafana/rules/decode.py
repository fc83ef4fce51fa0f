"""Alerts on the decode pool."""

from __future__ import annotations

from pdops.grafana.rules.promql import on, per_cluster, per_pool, per_worker, worker
from pdops.grafana.rules.types import CLUSTER, POOL, WORKER, Alert, Group, Value

_USED = per_worker('pdops_kv_cache_usage{role="decode"}')
_WAITING = per_worker('max_over_time(pdops_queue_requests{role="decode"}[10m])', "sum")
_LONG, _BEFORE = (
    per_pool(f'rate(pdops_output_length_sum{{role="decode"}}[15m]{ago})', "sum")
    + " / "
    + per_pool(f'rate(pdops_output_length_count{{role="decode"}}[15m]{ago}) > 0', "sum")
    for ago in ("", " offset 1h")
)


def _held(kv_ratio: float, running: float, waiting: float) -> dict[str, Value]:
    """Return test series of one decode worker."""
    return {
        worker("pdops_kv_cache_usage", "decode"): kv_ratio,
        worker("pdops_running_requests", "decode"): running,
        worker("pdops_queue_requests", "decode", reason="capacity"): waiting,
    }


def group() -> Group:
    """Return the group."""
    return Group(name="pdops-decode-alerts", alerts=_ALERTS)


_ALERTS = (
    Alert(
        name="PDDecodeWorkerDown",
        expr=per_worker('pdops_worker_up{role="decode"}') + " == 0",
        for_="2m",
        severity="critical",
        summary="Decode worker {{ $labels.worker }} of {{ $labels.cluster }} does not answer",
        do="Look at its log and its node before anything else. Prefill holds KV that it will not pull until the lease ends; "
        "more prefill strands more of it.",
        check="decode/worker-down",
        cause="decode-down",
        board="decode",
        inputs={worker("pdops_worker_up", "decode"): (1, 0), worker("pdops_worker_up", "prefill"): 0},
        names={"worker": "decode-0"},
        optional=frozenset({worker("pdops_worker_up", "prefill")}),
    ),
    Alert(
        name="PDDecodeKvExhausted",
        expr=f"{_USED} > 0.9 and {on(WORKER)} "
        + per_worker('rate(pdops_preemptions_total{role="decode"}[5m])')
        + " > 0",
        for_="2m",
        summary="{{ $labels.worker }} of {{ $labels.cluster }} runs out of KV blocks and preempts",
        do="Preempted requests are computed again. Fewer at once, shorter outputs or more decode workers; more prefill makes "
        "it worse.",
        check="decode/kv-exhaustion",
        cause="decode-kv-exhaustion",
        board="decode",
        inputs={
            worker("pdops_kv_cache_usage", "decode"): (0.9, 0.91),
            worker("pdops_preemptions_total", "decode"): 0.1,
        },
        names={"worker": "decode-0"},
    ),
    Alert(
        name="PDDecodeKvNearFull",
        expr=per_worker('pdops_kv_cache_time_to_full_seconds{role="decode"}')
        + f" < 600 and {on(WORKER)} {_USED} > 0.7",
        for_="2m",
        summary="KV of {{ $labels.worker }} in {{ $labels.cluster }} is full in less than ten minutes",
        do="Slow the inflow at the router or add decode workers now: starting one takes longer than this leaves later.",
        check="decode/kv-exhaustion",
        cause="decode-kv-exhaustion",
        board="decode",
        inputs={
            worker("pdops_kv_cache_time_to_full_seconds", "decode"): (600, 599),
            worker("pdops_kv_cache_usage", "decode"): 0.8,
        },
        names={"worker": "decode-0"},
        more={
            "it rises fast from low down": (
                {
                    worker("pdops_kv_cache_time_to_full_seconds", "decode"): 300,
                    worker("pdops_kv_cache_usage", "decode"): 0.7,
                },
                False,
            ),
        },
    ),
    Alert(
        name="PDDecodeKvHeadroom",
        expr=per_pool('quantile_over_time(0.99, pdops_kv_cache_usage{role="decode"}[15m])', "max") + " > 0.7",
        keeps=POOL,
        for_="15m",
        severity="info",
        summary="Less than 30 % of decode's KV stays free in pool {{ $labels.pool }} of {{ $labels.cluster }}",
        do="Well used, not yet short: preemptions and waiting requests say that. Plan for more decode workers.",
        check="decode/kv-headroom",
        cause="decode-kv-exhaustion",
        board="decode",
        inputs={worker("pdops_kv_cache_usage", "decode"): (0.7, 0.71)},
        names={"pool": "decode"},
    ),
    Alert(
        name="PDDecodeKvLeaked",
        expr=per_worker('min_over_time(pdops_kv_cache_usage{role="decode"}[10m])')
        + f" > 0.5 and {on(WORKER)} "
        + per_worker('max_over_time(pdops_running_requests{role="decode"}[10m])')
        + f" <= 0.5 and {on(WORKER)} {_WAITING} <= 0.5",
        summary="{{ $labels.worker }} of {{ $labels.cluster }} holds KV while nothing runs or waits",
        do="Aborted or failed requests left it behind. Drain the worker and restart it; the KV does not come back by itself.",
        check="decode/kv-leak",
        cause="kv-leak-decode",
        board="decode",
        inputs={
            worker("pdops_kv_cache_usage", "decode"): (0.5, 0.51),
            worker("pdops_running_requests", "decode"): 0,
            worker("pdops_queue_requests", "decode", reason="capacity"): 0,
        },
        names={"worker": "decode-0"},
        more={
            "one runs now and then": (_held(0.9, 0.6, 0), False),
            "one waits now and then": (_held(0.9, 0, 0.6), False),
            "what is counted as half a request is nobody": (_held(0.9, 0.5, 0.5), True),
        },
    ),
    Alert(
        name="PDSilentLocalPrefill",
        expr='worker:pdops_local_prefill:ratio_rate5m{role="decode"} > 0.05',
        summary="{{ $labels.worker }} of {{ $labels.cluster }} computes prompts itself instead of pulling their KV",
        do="Decode does prefill's work, and its token gaps pay for it. Check that the router passes the KV parameters on and "
        "that the pair still speaks; do not add decode workers.",
        check="router/silent-local-prefill",
        cause="silent-local-prefill",
        board="decode",
        inputs={
            worker("pdops_local_prefill_tokens_total", "decode"): (49, 51),
            worker("pdops_prompt_tokens_total", "decode"): 1000,
        },
        names={"worker": "decode-0"},
    ),
    Alert(
        name="PDDecodeSkew",
        expr="worker:pdops_itl_seconds:mean5m > "
        f"{on(POOL)} group_left () (1.5 * quantile by ({', '.join(POOL)}) (0.5, worker:pdops_itl_seconds:mean5m)) and "
        f"{on(POOL)} count by ({', '.join(POOL)}) (worker:pdops_itl_seconds:mean5m) >= 3",
        summary="Token gaps of {{ $labels.worker }} in {{ $labels.cluster }} are half as long again as its peers'",
        do="One worker is slow, the pool is not: look at its GPU clocks and its load, cordon it, and do not scale the pool.",
        check="decode/itl-high",
        cause="decode-slow-worker",
        board="decode",
        inputs={
            worker("pdops_itl_seconds_sum", "decode"): (14.9, 15.2),
            worker("pdops_itl_seconds_count", "decode"): 100,
            worker("pdops_itl_seconds_sum", "decode", "decode-1"): 10,
            worker("pdops_itl_seconds_count", "decode", "decode-1"): 100,
            worker("pdops_itl_seconds_sum", "decode", "decode-2"): 10,
            worker("pdops_itl_seconds_count", "decode", "decode-2"): 100,
        },
        names={"worker": "decode-0"},
        more={
            "two workers are no peers to judge by": (
                {
                    worker("pdops_itl_seconds_sum", "decode"): 90,
                    worker("pdops_itl_seconds_count", "decode"): 100,
                    worker("pdops_itl_seconds_sum", "decode", "decode-1"): 10,
                    worker("pdops_itl_seconds_count", "decode", "decode-1"): 100,
                },
                False,
            ),
        },
    ),
    Alert(
        name="PDKvWaitUnbounded",
        expr=per_pool('pdops_queue_requests{role="decode",reason="deferred"}')
        + f" > 2 unless {on(CLUSTER)} "
        + per_cluster('pdops_kv_transfer_bytes_total{role="decode"}', "count"),
        keeps=POOL,
        summary="Requests in pool {{ $labels.pool }} of {{ $labels.cluster }} wait for KV, and nobody counts what arrives",
        do="Set a timeout on the wait for KV, and switch on the connector's metrics, so that a cut link can be told from a "
        "slow one.",
        check="transfer/waits-unbounded",
        cause="no-timeout-hang",
        board="decode",
        inputs={worker("pdops_queue_requests", "decode", reason="deferred"): (2, 2.1)},
        names={"pool": "decode"},
        more={
            "bytes are counted, so other checks say more": (
                {
                    worker("pdops_queue_requests", "decode", reason="deferred"): 5,
                    worker("pdops_kv_transfer_bytes_total", "decode"): 0,
                },
                False,
            ),
        },
    ),
    Alert(
        name="PDOutputInflation",
        expr=f"({_LONG}) > 1.5 * ({_BEFORE}) and {on(POOL)} pool:pdops_kv_cache_usage:max > 0.8",
        keeps=POOL,
        for_="10m",
        summary="Outputs in pool {{ $labels.pool }} of {{ $labels.cluster }} grew by half within an hour and fill its KV",
        do="Ask for shorter outputs or a smaller reasoning budget, or plan decode for them; prefill is not short.",
        check="client/output-inflation",
        cause="output-inflation",
        board="decode",
        inputs={
            worker("pdops_output_length_sum", "decode"): ("0+60000x75 4500000+89000x75", "0+60000x75 4500000+92000x75"),
            worker("pdops_output_length_count", "decode"): 10,
            worker("pdops_kv_cache_usage", "decode"): 0.85,
        },
        names={"pool": "decode"},
        horizon_m=110,
    ),
)
