"""KV stores: how full, by tier."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from pdops.model.cluster import Role
from pdops_exporters.labels import WORKER, worker_values
from pdops_exporters.readings import newest
from pdops_exporters.watched import Snapshot


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield bytes held by tier and the fill of the memory tier; absent while no segment is mounted."""
    held = GaugeMetricFamily("pdops_kvstore_held_bytes", "bytes of KV held, by tier", labels=(*WORKER, "tier"))
    fill = GaugeMetricFamily("pdops_kvstore_fill_ratio", "share of the memory tier in use (0-1)", labels=WORKER)
    for worker, signals in newest(snapshot):
        if worker.role is not Role.KVSTORE:
            continue
        labels = worker_values(snapshot.cluster, worker)
        for tier, signal in (("memory", "kvstore_used_bytes"), ("disk", "kvstore_disk_used_bytes")):
            if signal in signals:
                held.add_metric([*labels, tier], signals[signal])
        total = signals.get("kvstore_total_bytes", 0.0)
        if total > 0 and "kvstore_used_bytes" in signals:
            fill.add_metric(labels, signals["kvstore_used_bytes"] / total)
    yield from (held, fill)
