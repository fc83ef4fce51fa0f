"""What preflight checks say of the configuration that is known."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from pdops.diagnose.preflight import Outcome
from pdops_exporters.labels import CLUSTER, cluster_values
from pdops_exporters.watched import Snapshot

STATUSES = (Outcome.FAIL, Outcome.UNKNOWN, Outcome.WARN, Outcome.OK)


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield `pdops_preflight`; a check that does not apply here has no series."""
    family = GaugeMetricFamily(
        "pdops_preflight",
        "1 for what a preflight check came to, from configuration that can be read beside scraping",
        labels=(*CLUSTER, "check", "status"),
    )
    labels = cluster_values(snapshot.cluster)
    for check, came_to in snapshot.preflight.items():
        if came_to is not Outcome.NOT_APPLICABLE:
            for status in STATUSES:
                family.add_metric([*labels, check, status.value], float(came_to is status))
    yield family
