"""All subjects as one collector of prometheus_client; one that fails is named and does not take the others with it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from pdops import __version__
from pdops_exporters import cache, findings, health, preflight, queues, signals, slo, store, transfer
from pdops_exporters.watched import Snapshot

_log = logging.getLogger(__name__)

SUBJECTS: tuple[ModuleType, ...] = (signals, queues, cache, transfer, store, slo, findings, preflight, health)
"""One file a subject, each with `collect(snapshot)`."""


class ClusterCollector(Collector):
    """Turns the newest snapshot into families.

    Args:
        snapshot: gives the newest snapshot, or None before the first frame.
        registry: where to register; nothing is registered globally.
    """

    def __init__(self, snapshot: Callable[[], Snapshot | None], registry: CollectorRegistry) -> None:
        self._snapshot = snapshot
        self._errors: dict[str, int] = {module.__name__.rpartition(".")[2]: 0 for module in SUBJECTS}
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: families depend on what engines give, and registering must not scrape."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield every family of the newest snapshot."""
        begin = time.perf_counter()
        info = GaugeMetricFamily("pdops_exporter_info", "1; the version of pdops", labels=("version",))
        info.add_metric([__version__], 1.0)
        yield info
        snapshot = self._snapshot()
        if snapshot is not None:
            for module in SUBJECTS:
                yield from self._one(module, snapshot)
        errors = CounterMetricFamily(
            "pdops_exporter_subject_errors", "times a subject could not be made", labels=("subject",)
        )
        for name, count in self._errors.items():
            errors.add_metric([name], float(count))
        cost = GaugeMetricFamily("pdops_exporter_collect_seconds", "time this page took to be made")
        cost.add_metric([], time.perf_counter() - begin)
        yield from (errors, cost)

    def _one(self, module: ModuleType, snapshot: Snapshot) -> list[Metric]:
        try:
            return [family for family in module.collect(snapshot) if family.samples]
        except Exception as error:  # noqa: BLE001  a defect in one subject must not blind the others
            name = module.__name__.rpartition(".")[2]
            if self._errors[name] == 0:
                _log.warning("subject %s could not be made: %s: %s", name, type(error).__name__, error)
            self._errors[name] += 1
            return []
