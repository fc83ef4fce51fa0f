"""Who waits, and for what: queue depth by worker and reason."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from pdops_exporters.labels import WORKER, worker_values
from pdops_exporters.readings import newest
from pdops_exporters.watched import Snapshot

REASONS = {
    "queue_depth_capacity": "capacity",
    "queue_depth_deferred": "deferred",
    "decode_prealloc_queue_depth": "kv-fetch-to-start",
    "transfer_queue_depth": "kv-fetch-in-progress",
    "kv_fetch_done_waiting": "kv-fetch-done",
}
"""Signal to reason. On a vLLM decode worker requests that wait for KV are counted under `deferred` as well."""
ANY = "any"
"""Reason of engines that tell only how many wait."""


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield `pdops_queue_requests` by reason."""
    family = GaugeMetricFamily(
        "pdops_queue_requests",
        "requests that wait, by what for; kv-fetch-* stages are part of deferred on vLLM",
        labels=(*WORKER, "reason"),
    )
    for worker, signals in newest(snapshot):
        labels = worker_values(snapshot.cluster, worker)
        told = {reason: signals[signal] for signal, reason in REASONS.items() if signal in signals}
        if not told and "queue_depth" in signals:
            told = {ANY: signals["queue_depth"]}
        for reason, value in told.items():
            family.add_metric([*labels, reason], value)
    yield family
