"""KV stores by tier, as far as they tell: what is held, what there is room for, and which tier answers."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from pdops.model.cluster import Role
from pdops_exporters.labels import WORKER, worker_values
from pdops_exporters.readings import newest
from pdops_exporters.watched import Snapshot

HELD = {"memory": "kvstore_used_bytes", "disk": "kvstore_disk_used_bytes"}
ROOM = {"memory": "kvstore_total_bytes", "disk": "kvstore_disk_total_bytes"}
HITS = {"memory": "kvstore_memory_hits", "disk": "kvstore_disk_hits"}


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield bytes held, capacity and reads answered by tier, and the fill of the memory tier while there is one."""
    by_tier = (*WORKER, "tier")
    held = GaugeMetricFamily("pdops_kvstore_held_bytes", "bytes of KV held, by tier", labels=by_tier)
    room = GaugeMetricFamily("pdops_kvstore_capacity_bytes", "bytes there is room for, by tier", labels=by_tier)
    hits = CounterMetricFamily("pdops_kvstore_hits", "reads that a tier answered (objects)", labels=by_tier)
    fill = GaugeMetricFamily("pdops_kvstore_fill_ratio", "share of the memory tier in use (0-1)", labels=WORKER)
    for worker, signals in newest(snapshot):
        if worker.role is not Role.KVSTORE:
            continue
        labels = worker_values(snapshot.cluster, worker)
        for family, by in ((held, HELD), (room, ROOM), (hits, HITS)):
            for tier, signal in by.items():
                if signal in signals:
                    family.add_metric([*labels, tier], signals[signal])
        used = _fill(signals)
        if used is not None:
            fill.add_metric(labels, used)
    yield from (held, room, hits, fill)


def _fill(signals: dict[str, float]) -> float | None:
    """Return the share in use; None while no segment is mounted, since a store without room is not an empty one."""
    total = signals.get("kvstore_total_bytes", 0.0)
    if total > 0 and "kvstore_used_bytes" in signals:
        return signals["kvstore_used_bytes"] / total
    return signals.get("kvstore_usage")
