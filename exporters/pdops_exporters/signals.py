"""Every signal of the catalog, from every engine, under its one name.

`pdops_SIGNAL` is a worker's own, `pdops_pair_SIGNAL` belongs to a (prefill, decode) pair, `pdops_client_SIGNAL` is what
clients see at the router, `pdops_router_view_SIGNAL` what the router says about a worker or itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from pdops.catalog.binding import Column
from pdops.catalog.load import catalog
from pdops.model.cluster import CLIENT, PAIR_PREFIX, ROUTER, Cluster, Pair
from pdops.model.series import Kind
from pdops_exporters.labels import CLUSTER, PAIR, WORKER, clean, cluster_values, pair_values, worker_values
from pdops_exporters.page import Labels, labels_of
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
        "kvstore_memory_hits",
        "kvstore_disk_hits",
    }
)
"""Signals that one family with a label says better: see `queues`, `cache`, `transfer`, `store` and `health`."""

_Where = tuple[str, tuple[str, ...], tuple[str, ...]]
"""Prefix of the family, label names, label values."""
_Key = tuple[str, str]
"""Prefix of the family, and the signal."""


@dataclass(frozen=True, slots=True)
class _Row:
    """Where one signal of one owner stands on a page: places of its columns, with labels written already.

    `buckets` are (edge, place, labels) by rising edge. A gauge or counter has its place in `value`.
    """

    key: _Key
    where: _Where
    labels: Labels
    value: int = -1
    count: int = -1
    sum: int = -1
    buckets: tuple[tuple[float, int, Labels], ...] = ()
    endless: Labels = field(default_factory=Labels)


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield one family per signal and kind of owner that some page gives."""
    families: dict[_Key, list[Sample]] = {}
    given: dict[tuple[str, _Where], Page] = {}
    cluster = snapshot.cluster
    for page in sorted(snapshot.pages, key=lambda page: worker_values(cluster, page.worker)):
        rows = page.derive(__name__, partial(_rows, cluster, page))
        now, grown = page.now.tolist(), page.grown.tolist()
        for row in rows:
            # Two pages of a worker may tell the same; adding them up would count it twice.
            if given.setdefault((row.key[1], row.where), page) is page:
                _put(row, now, grown, families.setdefault(row.key, []))
    order = sorted(families, key=lambda key: (catalog().signals[key[1]].kind is Kind.HISTOGRAM, key))
    for key in order:
        if families[key]:
            spec = catalog().signals[key[1]]
            family = Metric(_name(key), f"{spec.meaning} ({spec.unit})", spec.kind.value)
            family.samples = families[key]
            yield family


def _rows(cluster: Cluster, page: Page) -> tuple[_Row, ...]:
    """Return what a page of this layout gives, by owner and signal."""
    places: dict[tuple[_Key, _Where], dict[str, int]] = {}
    pairs: set[str] = set()
    for place, column in enumerate(page.columns):
        if column.rate or column.part.startswith("rank=") or column.signal not in catalog().signals:
            continue
        where = _where(cluster, page, column)
        if where is None or (column.signal in ELSEWHERE and where[0] == "pdops_"):
            continue
        if where[1] is PAIR and column.scope not in pairs:
            if len(pairs) >= MAX_PAIRS:
                continue
            pairs.add(column.scope)
        places.setdefault(((where[0], column.signal), where), {})[column.part] = place
    found = [_row(key, where, parts) for (key, where), parts in sorted(places.items())]
    return tuple(row for row in found if row is not None)


def _row(key: _Key, where: _Where, parts: dict[str, int]) -> _Row | None:
    _, names, values = where
    labels = labels_of(names, values)
    if catalog().signals[key[1]].kind is not Kind.HISTOGRAM:
        return _Row(key, where, labels, value=parts[""]) if "" in parts else None
    if "count" not in parts:
        return None
    edges = sorted((float(part.removeprefix("le=")), place) for part, place in parts.items() if part.startswith("le="))
    with_le = (*names, "le")
    return _Row(
        key,
        where,
        labels,
        count=parts["count"],
        sum=parts.get("sum", -1),
        buckets=tuple((edge, place, labels_of(with_le, (*values, _le(edge)))) for edge, place in edges),
        endless=labels_of(with_le, (*values, _le(math.inf))),
    )


def _put(row: _Row, now: list[float], grown: list[float], samples: list[Sample]) -> None:
    """Add the samples of a row that are known."""
    name = _name(row.key)
    if row.value >= 0:
        counter = catalog().signals[row.key[1]].kind is Kind.COUNTER
        value = (grown if counter else now)[row.value]
        if math.isfinite(value):
            samples.append(Sample(f"{name}_total" if counter else name, row.labels, value))
        return
    count = grown[row.count]
    if not math.isfinite(count):
        return
    endless, bucket = count, f"{name}_bucket"
    for edge, place, labels in row.buckets:
        value = grown[place]
        if edge == math.inf:
            endless = value if math.isfinite(value) else endless
        elif math.isfinite(value):
            samples.append(Sample(bucket, labels, value))
    samples.append(Sample(bucket, row.endless, endless))
    if row.sum >= 0 and math.isfinite(grown[row.sum]):
        samples.append(Sample(f"{name}_count", row.labels, endless))
        samples.append(Sample(f"{name}_sum", row.labels, grown[row.sum]))


def _where(cluster: Cluster, page: Page, column: Column) -> _Where | None:
    scope = column.scope
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


def _name(key: _Key) -> str:
    prefix, signal = key
    return f"{prefix}{signal.removeprefix('client_') if prefix == 'pdops_client_' else signal}"


def _le(edge: float) -> str:
    return "+Inf" if edge == math.inf else f"{edge:.10g}"
