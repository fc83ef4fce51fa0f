"""Push the same families through OpenTelemetry, for those who collect and do not scrape."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from pdops import __version__
from pdops.errors import UsageError

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation

EXPORT_EVERY_S = 15.0


class OtlpPush:
    """Pushes every family as an observable instrument; histograms go as their count, sum and buckets by `le`.

    OpenTelemetry has no observable histogram, so buckets are counters with a label, named as Prometheus names them.

    Args:
        registry: what to push.
        endpoint: URL of an OTLP/HTTP receiver; `/v1/metrics` is added when it names no path.
        every_s: seconds between pushes.

    Raises:
        UsageError: the OpenTelemetry SDK is not installed.
    """

    def __init__(self, registry: CollectorRegistry, endpoint: str, *, every_s: float = EXPORT_EVERY_S) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
            from opentelemetry.sdk.resources import Resource
        except ImportError as error:
            raise UsageError(
                "OTLP needs the OpenTelemetry SDK", why=str(error), hint="pip install 'pdops[otel]'"
            ) from error
        self._registry = registry
        self._known: set[str] = set()
        exporter = OTLPMetricExporter(endpoint=_with_path(endpoint))
        self._reader = PeriodicExportingMetricReader(exporter, export_interval_millis=every_s * 1000.0)
        resource = Resource.create({"service.name": "pdops-exporter", "service.version": __version__})
        self._provider = MeterProvider(metric_readers=[self._reader], resource=resource, shutdown_on_exit=False)
        self._meter = self._provider.get_meter("pdops.exporter", __version__)
        self._families: dict[str, list[tuple[float, dict[str, str]]]] = {}

    def refresh(self) -> None:
        """Take over the newest values, and make instruments for families that are new."""
        fresh: dict[str, list[tuple[float, dict[str, str]]]] = {}
        kinds: dict[str, Metric] = {}
        for family in self._registry.collect():
            for sample in family.samples:
                if sample.name.endswith("_created") or not math.isfinite(sample.value):
                    continue
                fresh.setdefault(sample.name, []).append((float(sample.value), dict(sample.labels)))
                kinds[sample.name] = family
        self._families = fresh
        for name in sorted(set(fresh) - self._known):
            self._known.add(name)
            family = kinds[name]
            cumulative = family.type in ("counter", "histogram")
            make = self._meter.create_observable_counter if cumulative else self._meter.create_observable_gauge
            make(name, callbacks=[self._observer(name)], description=family.documentation)

    def _observer(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        from opentelemetry.metrics import Observation

        def observe(_: Any) -> Iterable[Observation]:
            for value, labels in self._families.get(name, ()):
                yield Observation(value, labels)

        return observe

    def close(self) -> None:
        """Push once more and stop."""
        self._provider.shutdown()


def _with_path(endpoint: str) -> str:
    from yarl import URL

    try:
        url = URL(endpoint)
        _ = url.port
    except ValueError as error:
        raise UsageError(
            "the OTLP endpoint is no http(s) URL", where=endpoint[:200], why=str(error), hint="as http://collector:4318"
        ) from error
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageError("the OTLP endpoint is no http(s) URL", where=endpoint, hint="as http://collector:4318")
    return str(url / "v1/metrics") if url.path in ("", "/") else endpoint
