"""Alerts on what clients get, and on the router."""

from __future__ import annotations

from pdops.grafana.rules.promql import client, cluster, on, per_cluster, per_pool, worker
from pdops.grafana.rules.types import CLUSTER, POOL, Alert, Group, Value
from pdops.model.report import Symptom

_OK, _BAD = "cluster:pdops_client_request_success:rate5m", "cluster:pdops_client_request_failure:rate5m"
_GIVEN_UP = " + ".join(
    f"({per_cluster(f'rate(pdops_client_{what}_total[5m])')} or 0 * {_OK})" for what in ("aborts", "request_timeouts")
)
_TRAFFIC = 'worker:pdops_request_success:rate5m{role=~"prefill|decode"}'


def groups() -> tuple[Group, ...]:
    """Return the groups."""
    return (
        Group(name="pdops-client-alerts", alerts=_CLIENTS),
        Group(name="pdops-router-alerts", alerts=_ROUTER),
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
