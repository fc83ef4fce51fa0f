"""Alerts on KV transfers and the network under them."""

from __future__ import annotations

from pdops.grafana.rules.promql import cluster, on, per_worker, worker
from pdops.grafana.rules.types import CLUSTER, WORKER, Alert, Group, Value

_SPEED = "worker:pdops_kv_transfer_bandwidth_bytes_per_second:mean5m"
_SLO = 'max by (cluster, model) (pdops_slo_seconds{slo="ttft"})'
_FELT = (
    f"and {on(WORKER)} worker:pdops_kv_transfer_seconds_count:rate5m > 0.1 "
    f"unless {on(WORKER)} (worker:pdops_kv_transfer_seconds:mean5m < {on(CLUSTER)} group_left () (0.05 * {_SLO}))"
)
"""Enough transfers to tell, and not so short that no client feels them."""


def group() -> Group:
    """Return the group."""
    return Group(name="pdops-transfer-alerts", alerts=_ALERTS)


def _moving(name: str, bytes_per_s: Value, seconds: float = 0.5) -> dict[str, Value]:
    """Return test series of a decode worker that moves so many bytes/s in one transfer a second, each `seconds` long."""
    return {
        worker("pdops_kv_transfer_bytes_total", "decode", name): bytes_per_s,
        worker("pdops_kv_transfer_seconds_sum", "decode", name): seconds,
        worker("pdops_kv_transfer_seconds_count", "decode", name): 1,
    }


def _peers(transfers_per_s: float) -> dict[str, Value]:
    """Return test series of three decode workers, the first of them slow."""
    slow = {**_moving("decode-0", 20e6), worker("pdops_kv_transfer_seconds_count", "decode"): transfers_per_s}
    return {**slow, **_moving("decode-1", 100e6), **_moving("decode-2", 100e6)}


def _since_an_hour(transfers_per_s: float, promised_s: float) -> dict[str, Value]:
    """Return test series of a decode worker that moves a third of the bytes of an hour ago."""
    moved = "0+6000000000x60 360000000000+2000000000x60"
    return {
        **_moving("decode-0", 0),
        worker("pdops_kv_transfer_bytes_total", "decode"): moved,
        worker("pdops_kv_transfer_seconds_count", "decode"): transfers_per_s,
        cluster("pdops_slo_seconds", slo="ttft"): promised_s,
    }


_ALERTS = (
    Alert(
        name="PDKvReadAfterExpiry",
        expr=per_worker('increase(pdops_kv_notifications_after_expiry_total{role="prefill"}[10m])') + " > 0",
        for_="0m",
        severity="critical",
        summary="KV of {{ $labels.worker }} in {{ $labels.cluster }} was read after its lease had expired: answers may be wrong",
        do="Requests may have ended with HTTP 200 and wrong text; the counter lags on an idle worker. Check answers with "
        "`pdops canary`, and lengthen the lease or shorten the wait in decode.",
        check="transfer/read-after-expiry",
        cause="kv-lease-expiry",
        board="kv-transfer",
        inputs={worker("pdops_kv_notifications_after_expiry_total", "prefill"): (0, 0.01)},
        names={"worker": "prefill-0"},
    ),
    Alert(
        name="PDKvLeaseExpired",
        expr=per_worker('increase(pdops_kv_transfer_expired_total{role="prefill"}[10m])') + " > 0",
        for_="0m",
        summary="{{ $labels.worker }} of {{ $labels.cluster }} freed KV that no decode worker had pulled",
        do="Each one was a prefill for nothing; its request failed or was computed again. Find out why decode did not come: "
        "it is down, behind, or the client went away. More prefill strands more KV.",
        check="transfer/lease-expiry",
        cause="kv-strand-prefill",
        board="kv-transfer",
        inputs={worker("pdops_kv_transfer_expired_total", "prefill"): (0, 0.01)},
        names={"worker": "prefill-0"},
    ),
    Alert(
        name="PDKvTransferFailing",
        expr=per_worker('increase(pdops_kv_transfer_failures_total{role=~"prefill|decode"}[5m])') + " > 0",
        for_="1m",
        summary="KV transfers of {{ $labels.worker }} in {{ $labels.cluster }} fail",
        do="The counter also counts handshakes and notifications, so one request may add two. If a peer restarted lately, "
        "restart the pair's other side, not the peer again.",
        check="transfer/failures",
        cause="transport-error",
        board="kv-transfer",
        inputs={worker("pdops_kv_transfer_failures_total", "decode"): (0, 0.02)},
        names={"worker": "decode-0"},
    ),
    Alert(
        name="PDKvTransferSlow",
        expr=f"{_SPEED} < {on(CLUSTER)} group_left () (0.5 * quantile by (cluster, model) (0.75, {_SPEED})) "
        f"and {on(CLUSTER)} count by (cluster, model) ({_SPEED}) >= 3 {_FELT}",
        summary="KV moves to {{ $labels.worker }} of {{ $labels.cluster }} at less than half the speed of its peers",
        do="Compare its transport variables and devices with a fast peer's, and measure the link. More prefill adds load to it.",
        check="transfer/link-slow",
        cause="transport-slow",
        board="kv-transfer",
        labels={"against": "peers"},
        inputs={
            **_moving("decode-0", 0),
            worker("pdops_kv_transfer_bytes_total", "decode"): (50.1e6, 49.9e6),
            **_moving("decode-1", 100e6),
            **_moving("decode-2", 100e6),
            cluster("pdops_slo_seconds", slo="ttft"): 1.0,
        },
        names={"worker": "decode-0"},
        optional=frozenset(
            {
                cluster("pdops_slo_seconds", slo="ttft"),
                *(worker("pdops_kv_transfer_seconds_count", "decode", f"decode-{n}") for n in (1, 2)),
            }
        ),
        more={
            "two workers are no peers to judge by": (
                {**_moving("decode-0", 20e6), **_moving("decode-1", 100e6)},
                False,
            ),
            "one transfer in eleven seconds tells nothing": (_peers(0.09), False),
            "one transfer in nine seconds tells": (_peers(0.11), True),
            "transfers just long enough to be felt": (
                {
                    **_moving("decode-0", 20e6, 0.06),
                    **_moving("decode-1", 100e6, 0.06),
                    **_moving("decode-2", 100e6, 0.06),
                    cluster("pdops_slo_seconds", slo="ttft"): 1.0,
                },
                True,
            ),
            "transfers too short to be felt": (
                {
                    **_moving("decode-0", 20e6, 0.04),
                    **_moving("decode-1", 100e6, 0.04),
                    **_moving("decode-2", 100e6, 0.04),
                    cluster("pdops_slo_seconds", slo="ttft"): 1.0,
                },
                False,
            ),
        },
    ),
    Alert(
        name="PDKvTransferSlow",
        expr=f"{_SPEED} < 0.5 * ({_SPEED} offset 1h) {_FELT}",
        summary="KV moves to {{ $labels.worker }} of {{ $labels.cluster }} at less than half of its speed an hour ago",
        do="Compare its transport variables and devices with those before, and measure the link. More prefill adds load to it.",
        check="transfer/link-slow",
        cause="transport-slow",
        board="kv-transfer",
        labels={"against": "history"},
        inputs={
            worker("pdops_kv_transfer_bytes_total", "decode"): (
                "0+6000000000x60 360000000000+3060000000x60",
                "0+6000000000x60 360000000000+2940000000x60",
            ),
            worker("pdops_kv_transfer_seconds_sum", "decode"): 0.5,
            worker("pdops_kv_transfer_seconds_count", "decode"): 1,
        },
        names={"worker": "decode-0"},
        horizon_m=100,
        more={
            "one transfer in eleven seconds tells nothing": (_since_an_hour(0.09, 1.0), False),
            "one transfer in nine seconds tells": (_since_an_hour(0.11, 1.0), True),
            "transfers too short to be felt": (_since_an_hour(1, 10.1), False),
            "transfers just long enough to be felt": (_since_an_hour(1, 9.9), True),
        },
    ),
    Alert(
        name="PDKvTransferStalled",
        expr=per_worker('min_over_time(pdops_queue_requests{role="decode",reason="kv-fetch-in-progress"}[1m])')
        + f" > 0 and {on(WORKER)} "
        + per_worker('increase(pdops_kv_transfer_bytes_total{role="decode"}[1m])')
        + " == 0",
        for_="0m",
        severity="critical",
        summary="KV transfers to {{ $labels.worker }} of {{ $labels.cluster }} are in progress and no byte moves",
        do="The KV link is cut although HTTP answers: no failure counter moves until leases end. Test the link itself between "
        "the two nodes; a restart of decode does not mend it.",
        check="transfer/stalled",
        cause="network-partition",
        board="kv-transfer",
        inputs={
            worker("pdops_queue_requests", "decode", reason="kv-fetch-in-progress"): 1,
            worker("pdops_kv_transfer_bytes_total", "decode"): (0.01, 0),
        },
        names={"worker": "decode-0"},
        step_s=15,
        more={
            "a transfer ended in between": (
                {
                    worker("pdops_queue_requests", "decode", reason="kv-fetch-in-progress"): "1x21 0 1x60",
                    worker("pdops_kv_transfer_bytes_total", "decode"): 0,
                },
                False,
            ),
        },
    ),
)
