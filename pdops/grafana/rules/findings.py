"""Alerts on what the diagnosis finds, where no expression over single metrics can tell it."""

from __future__ import annotations

from typing import NamedTuple

from pdops.grafana.rules.promql import by, cluster
from pdops.grafana.rules.types import CLUSTER, Alert, Group, Severity


class _Found(NamedTuple):
    name: str
    check: str
    cause: str
    """The first the check may name; the alert carries the one it did."""
    board: str
    summary: str
    do: str
    severity: Severity = "warning"
    for_: str = "1m"


_FOUND = (
    _Found(
        "PDKvUnused",
        "decode/kv-unused",
        "staging-buffer-exhausted",
        "decode",
        "Decode of {{ $labels.cluster }} is sent KV and computes the same prompts again",
        "Prompts outgrew a staging buffer: enlarge it on the decode side. Neither pool is short.",
    ),
    _Found(
        "PDDecodeRankImbalance",
        "decode/rank-imbalance",
        "router-imbalance",
        "decode",
        "One rank of a decode worker of {{ $labels.cluster }} is far fuller than the others",
        "Ranks that step together wait for the fullest. Balance requests over ranks; do not scale the pool.",
    ),
    _Found(
        "PDKvNeverConnected",
        "pair/never-connected",
        "handshake-address",
        "kv-transfer",
        "A pair of {{ $labels.cluster }} has never moved KV although requests ask for it",
        "Compare versions, backends and side-channel addresses of both ends, as `pdops preflight` does.",
        "critical",
    ),
    _Found(
        "PDDeadlock",
        "transfer/deadlock-ring",
        "backpressure-deadlock",
        "overview",
        "Prefill and decode of {{ $labels.cluster }} wait for each other and nothing moves",
        "Stop admitting requests and drain one side; more workers of either wait as well.",
        "critical",
    ),
    _Found(
        "PDNetworkSaturated",
        "network/saturated",
        "network-saturated",
        "kv-transfer",
        "The network under KV transfers of {{ $labels.cluster }} is full",
        "See what else uses the ports, and keep pairs within a node or zone. More prefill adds load.",
    ),
    _Found(
        "PDKvStoreMetadataLost",
        "kvstore/metadata-lost",
        "kvstore-metadata-loss",
        "capacity",
        "The KV store of {{ $labels.cluster }} forgot where its objects are",
        "Restart the store's clients or let them register again; the store fills up anew. Do not restart the store again.",
    ),
    _Found(
        "PDKvStoreFetchSlow",
        "kvstore/slow-fetch",
        "kvstore-slow-or-missed-prefetch",
        "capacity",
        "Fetching from the KV store of {{ $labels.cluster }} takes longer than it saves",
        "Look at the store's network and at what it is busy with; raise the length from which a prefix is worth fetching.",
    ),
    _Found(
        "PDKvStoreHitsFail",
        "kvstore/hits-fail",
        "kvstore-metadata-stale",
        "capacity",
        "The KV store of {{ $labels.cluster }} promises KV that cannot be read",
        "Clear the stale entries, or bypass the store until it is mended; requests wait for reads that fail.",
    ),
    _Found(
        "PDKvStoreNeverRead",
        "kvstore/written-never-read",
        "hash-mismatch",
        "capacity",
        "The KV store of {{ $labels.cluster }} is written to and never found anything in",
        "Compare what keys are made of on both sides: model, block size, dtype, hash seed, salt.",
        "info",
    ),
    _Found(
        "PDRouterOnly",
        "router/only",
        "router-fault",
        "overview",
        "Clients of {{ $labels.cluster }} wait or fail while its engines are well",
        "Look at the router and the connections in front of it; scaling either pool does not help. It also holds for a while "
        "when a fault behind the router has not reached the engines' own numbers yet: read what `pdops diagnose` names first.",
        for_="5m",
    ),
    _Found(
        "PDRouterHolds",
        "router/holds-requests",
        "router-stale-state",
        "overview",
        "The router of {{ $labels.cluster }} holds requests and hands none over, while engines are idle",
        "Look at which workers the router knows, and register them again or restart it; scaling either pool does not help.",
        "critical",
    ),
    _Found(
        "PDRouterDataStale",
        "router/stale-data",
        "router-stale-metrics",
        "overview",
        "The router of {{ $labels.cluster }} decides on old or missing data of a worker",
        "Find out why the router does not reach that worker's metrics; scaling does not help.",
    ),
    _Found(
        "PDAutoscalerOff",
        "capacity/autoscaler",
        "autoscaler-flap",
        "capacity",
        "The autoscaler of {{ $labels.cluster }} does not follow the load",
        "Hold it, look at the signal it scales on, and set the size by hand meanwhile.",
    ),
    _Found(
        "PDColdStart",
        "startup/cold-start",
        "cold-start",
        "overview",
        "First requests of {{ $labels.cluster }} pay for workers that have just started",
        "Wait, or warm workers up before they take traffic. Not a reason to scale.",
        "info",
    ),
)


def group() -> Group:
    """Return the group."""
    return Group(name="pdops-finding-alerts", alerts=tuple(_alert(found) for found in _FOUND))


def _alert(found: _Found) -> Alert:
    where = {"layer": "engine", "scope": "worker:w-0", "fault": "1"}
    series = cluster("pdops_finding", cause=found.cause, check=found.check, **where)
    other = cluster("pdops_finding", cause=found.cause, check="another/check", **where)
    return Alert(
        name=found.name,
        expr=by((*CLUSTER, "cause", "scope"), f'pdops_finding{{check="{found.check}"}}') + " >= 0.5",
        keeps=(*CLUSTER, "cause", "scope"),
        for_=found.for_,
        severity=found.severity,
        summary=f"{found.summary} ({{{{ $labels.scope }}}})",
        do=found.do,
        check=found.check,
        pool="all",
        board=found.board,
        inputs={series: (0.49, 0.5), other: 0.99},
        names={"cause": found.cause, "scope": "worker:w-0"},
        optional=frozenset({other}),
    )
