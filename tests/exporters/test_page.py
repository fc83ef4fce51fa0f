"""The page as pdops writes it is the page as prometheus_client writes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from pdops_exporters.page import labels_of, write
from pdops_exporters.watched import Watched

from .conftest import registry_of

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


class Fixed(Collector):
    def __init__(self, *families: Metric) -> None:
        self.families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self.families)


def registry(*families: Metric) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(Fixed(*families))
    return made


@given(st.floats(), TEXT, TEXT)
def test_any_value_and_label_is_written_as_the_library_does(value: float, label: str, documentation: str) -> None:
    gauge = GaugeMetricFamily("a_seconds", documentation, labels=("z", "b"))
    gauge.add_metric([label, "x"], value)
    ours = Metric("b_seconds", documentation, "gauge")
    ours.samples.append(Sample("b_seconds", labels_of(("z", "b"), (label, "x")), value))
    assert write(registry(gauge, ours)) == generate_latest(registry(gauge, ours))


def test_every_kind_of_family_is_written_as_the_library_does() -> None:
    counter = CounterMetricFamily("c", "counts", labels=("a",))
    counter.add_metric(["1"], 3e21)
    histogram = HistogramMetricFamily("h", "spreads", labels=("a",))
    histogram.add_metric(["1"], [("0.1", 1.0), ("+Inf", 2.0)], math.nan)
    info = InfoMetricFamily("i", "is", value={"v": "1"})
    empty = GaugeMetricFamily("g", "none", value=-0.0)
    found = registry(counter, histogram, info, empty)
    assert write(found) == generate_latest(found)


def test_a_cluster_is_written_as_the_library_does(played: Callable[..., Watched]) -> None:
    def without_cost(page: bytes) -> list[bytes]:
        return [line for line in page.splitlines() if not line.startswith(b"pdops_exporter_collect_seconds")]

    found = registry_of(played("healthy-load", 30))
    assert without_cost(write(found)) == without_cost(generate_latest(found))
