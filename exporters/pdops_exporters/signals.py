"""Every signal of the catalog, from every engine, under its one name.

`pdops_SIGNAL` is a worker's own, `pdops_pair_SIGNAL` belongs to a (prefill, decode) pair, `pdops_client_SIGNAL` is what
clients see at the router, `pdops_router_view_SIGNAL` what the router says about a worker or itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from pdops.catalog.load import catalog
from pdops.model.cluster import CLIENT, PAIR_PREFIX, ROUTER, Pair
from pdops.model.series import Kind
from pdops_exporters.labels import CLUSTER, PAIR, WORKER, clean, cluster_values, pair_values, worker_values
from pdops_exporters.watched import Page, Snapshot

MAX_PAIRS = 4096
"""Pairs exported of one page; more would be a P×D matrix that no scrape should carry."""

ELSEWHERE = frozenset(
    {
        "queue_depth_capacity",
        "queue_depth_deferred",
        "decode_prealloc_queue_depth",
        "transfer_queue_depth",
        "kv_fetch_done_waiting",
        "prefix_cache_queries",
        "prefix_cache_hits",
        "external_cache_queries",
        "external_cache_hits",
        "kv_generated_bytes",
        "process_start_seconds",
    }
)
"""Signals that one family with a label says better: see `queues`, `cache`, `transfer` and `health`."""

_Where = tuple[str, tuple[str, ...], tuple[str, ...]]
"""Prefix of the family, label names, label values."""


@dataclass(slots=True)
class _Histogram:
    buckets: dict[float, float] = field(default_factory=dict)
    count: float | None = None
    sum: float | None = None


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield one family per signal and kind of owner that some page gives."""
    numbers: dict[tuple[str, str], dict[_Where, float]] = {}
    histograms: dict[tuple[str, str], dict[_Where, _Histogram]] = {}
    given: dict[tuple[str, _Where], Page] = {}
    for page in snapshot.pages:
        pairs = 0
        for column, now, grown in zip(page.columns, page.now, page.grown, strict=True):
            if column.rate or column.part.startswith("rank="):
                continue
            spec = catalog().signals.get(column.signal)
            where = _where(snapshot, page, column.scope)
            if spec is None or where is None or (column.signal in ELSEWHERE and where[0] == "pdops_"):
                continue
            # Two pages of a worker may tell the same; adding them up would count it twice.
            if given.setdefault((column.signal, where), page) is not page:
                continue
            if where[1] is PAIR:
                pairs += 1
                if pairs > MAX_PAIRS * 32:
                    continue
            key = (where[0], column.signal)
            if spec.kind is Kind.HISTOGRAM:
                if np.isfinite(grown):
                    _put(histograms.setdefault(key, {}).setdefault(where, _Histogram()), column.part, float(grown))
                continue
            value = grown if spec.kind is Kind.COUNTER else now
            if np.isfinite(value):
                numbers.setdefault(key, {})[where] = float(value)
    yield from _numbers(numbers)
    yield from _histograms(histograms)


def _where(snapshot: Snapshot, page: Page, scope: str) -> _Where | None:
    cluster = snapshot.cluster
    if scope == "":
        return "pdops_", WORKER, tuple(worker_values(cluster, page.worker))
    if scope.startswith(PAIR_PREFIX):
        return "pdops_pair_", PAIR, tuple(pair_values(cluster, Pair.parse(scope)))
    if scope == CLIENT:
        return "pdops_client_", (*CLUSTER, "router"), (*cluster_values(cluster), page.worker.id)
    if scope == ROUTER:
        return "pdops_router_view_", (*CLUSTER, "router", "worker"), (*cluster_values(cluster), page.worker.id, "")
    # A router's label that names no worker of the inventory could be anything, and would be without bound.
    if cluster.get(scope) is None:
        return None
    labels = (*cluster_values(cluster), page.worker.id, clean(scope))
    return "pdops_router_view_", (*CLUSTER, "router", "worker"), labels


def _put(histogram: _Histogram, part: str, value: float) -> None:
    if part == "count":
        histogram.count = value
    elif part == "sum":
        histogram.sum = value
    else:
        histogram.buckets[float(part.removeprefix("le="))] = value


def _numbers(found: dict[tuple[str, str], dict[_Where, float]]) -> Iterator[Metric]:
    for (prefix, signal), rows in sorted(found.items()):
        spec = catalog().signals[signal]
        made = CounterMetricFamily if spec.kind is Kind.COUNTER else GaugeMetricFamily
        family = made(_name(prefix, signal), _help(signal), labels=_names(rows))
        for where, value in sorted(rows.items()):
            family.add_metric(list(where[2]), value)
        yield family


def _histograms(found: dict[tuple[str, str], dict[_Where, _Histogram]]) -> Iterator[Metric]:
    for (prefix, signal), rows in sorted(found.items()):
        family = HistogramMetricFamily(_name(prefix, signal), _help(signal), labels=_names(rows))
        for where, histogram in sorted(rows.items(), key=lambda item: item[0]):
            if histogram.count is None:
                continue
            edges = sorted(histogram.buckets.items()) or [(float("inf"), histogram.count)]
            buckets = [("+Inf" if np.isinf(edge) else f"{edge:.10g}", value) for edge, value in edges]
            if buckets[-1][0] != "+Inf":
                buckets.append(("+Inf", histogram.count))
            family.add_metric(list(where[2]), buckets, histogram.sum)
        if family.samples:
            yield family


def _name(prefix: str, signal: str) -> str:
    return f"{prefix}{signal.removeprefix('client_') if prefix == 'pdops_client_' else signal}"


def _names(rows: Iterable[_Where]) -> tuple[str, ...]:
    return next(iter(rows))[1]


def _help(signal: str) -> str:
    spec = catalog().signals[signal]
    return f"{spec.meaning} ({spec.unit})"
