"""Alerts on the prefill pool."""

from __future__ import annotations

from pdops.grafana.rules.promql import client, on, per_cluster, per_pool, per_worker, worker
from pdops.grafana.rules.types import CLUSTER, POOL, Alert, Group, Value

_WAITING = 'pdops_queue_requests{role="decode",reason=~"capacity|deferred|any"}'
_FULL = per_worker('pdops_kv_cache_usage{role="prefill"}') + " > 0.85"
_SERVED = per_cluster("increase(pdops_client_request_success_total[5m])")
_FAILED = per_cluster('rate(pdops_request_failure_total{role="prefill"}[5m])')
_TIMED_OUT = per_cluster("rate(pdops_client_request_timeouts_total[5m])")
_SEEN = per_cluster("rate(pdops_client_request_failure_total[5m])")


def _behind(kv_ratio: float, decode_waits: float, prefill_waits: float) -> dict[str, Value]:
    """Return test series of one worker on each side."""
    return {
        worker("pdops_kv_cache_usage", "prefill"): kv_ratio,
        worker("pdops_queue_requests", "decode", reason="deferred"): decode_waits,
        worker("pdops_queue_requests", "prefill", reason="capacity"): prefill_waits,
    }


def group() -> Group:
    """Return the group."""
    return Group(name="pdops-prefill-alerts", alerts=_ALERTS)


_ALERTS = (
    Alert(
        name="PDPrefillWorkerDown",
        expr=per_worker('pdops_worker_up{role="prefill"}') + " == 0",
        for_="2m",
        severity="critical",
        summary="Prefill worker {{ $labels.worker }} of {{ $labels.cluster }} does not answer",
        do="Look at its log and its node before anything else. Requests whose KV it held fail or wait. A worker that was "
        "removed on purpose leaves the inventory.",
        check="prefill/worker-down",
        cause="prefill-down",
        board="prefill",
        inputs={worker("pdops_worker_up", "prefill"): (1, 0), worker("pdops_worker_up", "decode"): 0},
        names={"worker": "prefill-0"},
        optional=frozenset({worker("pdops_worker_up", "decode")}),
    ),
    Alert(
        name="PDPrefillQueueing",
        expr='pool:pdops_queue_capacity_requests:avg{role="prefill"} > 2',
        keeps=POOL,
        summary="More than two requests wait per prefill worker in pool {{ $labels.pool }} of {{ $labels.cluster }}",
        do="First tokens wait here. If prefill's KV is above 85 % while decode queues, decode is what is short: more prefill "
        "makes it worse. Else scale prefill out.",
        check="prefill/queue-backlog",
        cause="prefill-undersized",
        board="prefill",
        inputs={
            worker("pdops_queue_requests", "prefill", reason="capacity"): (2, 2.1),
            worker("pdops_queue_requests", "prefill", reason="deferred"): 0,
            worker("pdops_queue_requests", "decode", reason="capacity"): 0,
        },
        names={"pool": "prefill"},
        optional=frozenset(
            {
                worker("pdops_queue_requests", "prefill", reason="deferred"),
                worker("pdops_queue_requests", "decode", reason="capacity"),
            }
        ),
    ),
    Alert(
        name="PDPrefillKvHeld",
        expr=f"{_FULL} and {on(CLUSTER)} {_SERVED} == 0",
        for_="2m",
        severity="critical",
        summary="{{ $labels.worker }} of {{ $labels.cluster }} is full of finished KV and no request ends",
        do="Nobody pulls what prefill has ready. Look at the decode side and the link; do not add prefill.",
        check="prefill/kv-held",
        cause="kv-strand-prefill",
        board="prefill",
        inputs={
            worker("pdops_kv_cache_usage", "prefill"): (0.85, 0.86),
            client("pdops_client_request_success_total"): 0,
        },
        names={"worker": "prefill-0"},
    ),
    Alert(
        name="PDDecodeBackpressure",
        expr=f"{_FULL} and {on(CLUSTER)} {per_cluster(per_worker(_WAITING, 'sum'), 'avg')} > 1 and {on(POOL)} "
        'pool:pdops_queue_capacity_requests:avg{role="prefill"} < 2',
        summary="Decode of {{ $labels.cluster }} is behind, and {{ $labels.worker }} is full of KV it has finished",
        do="Relieve decode: fewer requests at once or more decode workers. More prefill waits for the same decode, and each "
        "retry leaves another copy of the same KV.",
        check="decode/backpressure",
        cause="backpressure-to-prefill",
        board="prefill",
        inputs={
            worker("pdops_kv_cache_usage", "prefill"): (0.85, 0.86),
            worker("pdops_queue_requests", "decode", reason="deferred"): (1, 1.1),
            worker("pdops_queue_requests", "prefill", reason="capacity"): 0,
        },
        names={"worker": "prefill-0"},
        more={
            "prefill has room": (_behind(0.85, 5, 0), False),
            "decode keeps up": (_behind(0.95, 1, 0), False),
            "prefill is full because it is short itself": (_behind(0.95, 5, 2), False),
            "few wait for prefill": (_behind(0.95, 5, 1.9), True),
        },
    ),
    Alert(
        name="PDBootstrapWaiting",
        expr=f"{per_pool('pdops_prefill_queue_depth')} > 2 and {on(CLUSTER)} "
        f"{per_cluster('increase(pdops_client_request_failure_total[5m])')} > 0",
        keeps=POOL,
        summary="Requests of {{ $labels.cluster }} wait on prefill until decode says where their KV may go",
        do="Prefill and decode do not find each other in time. Check that each side reaches the other's bootstrap address; "
        "if decode has no room, relieve decode.",
        check="startup/bootstrap-wait",
        cause="bootstrap-timeout",
        board="prefill",
        inputs={
            worker("pdops_prefill_queue_depth", "prefill"): (2, 2.1),
            client("pdops_client_request_failure_total"): 0.1,
        },
        names={"pool": "prefill"},
    ),
    Alert(
        name="PDPrefillFailureHidden",
        expr=f"{_FAILED} > 0 and {_TIMED_OUT} > 0 and ({_SEEN} - {_TIMED_OUT}) < 0.5 * {_FAILED}",
        keeps=CLUSTER,
        summary="Requests that prefill fails reach the clients of {{ $labels.cluster }} as timeouts",
        do="Let the router pass prefill's error on at once; clients that wait for a timeout try again on a full cluster.",
        check="router/hidden-prefill-failure",
        cause="no-timeout-hang",
        pool="router",
        inputs={
            worker("pdops_request_failure_total", "prefill"): 1,
            client("pdops_client_request_failure_total"): (1.6, 1.4),
            client("pdops_client_request_timeouts_total"): 1,
        },
        names={"cluster": "c1"},
    ),
)
