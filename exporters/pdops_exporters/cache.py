"""Prefix cache hits by tier, KV cache use, and what decode computed itself although prefill had done it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from pdops.model.cluster import Role
from pdops.model.series import Series
from pdops_exporters.labels import WORKER, clean, worker_values
from pdops_exporters.readings import newest
from pdops_exporters.watched import Page, Snapshot

TIERS = {
    "local": ("prefix_cache_queries", "prefix_cache_hits"),
    "external": ("external_cache_queries", "external_cache_hits"),
}
SLOPE_S = 300.0
"""Seconds over which the growth of KV cache use is taken: a shorter span follows single requests."""
LEAST_SAMPLES = 10
LEAST_RISE = 1e-5
"""Rise per second (ratio/s) below which a cache is not filling: it would take more than a day."""


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield prefix cache queries and hits by tier, time to full, and decode's recompute share."""
    queries = CounterMetricFamily(
        "pdops_prefix_cache_query_tokens", "prompt tokens looked up, by cache tier", labels=(*WORKER, "tier")
    )
    hits = CounterMetricFamily(
        "pdops_prefix_cache_hit_tokens", "prompt tokens found, by cache tier", labels=(*WORKER, "tier")
    )
    recompute = GaugeMetricFamily(
        "pdops_decode_recompute_ratio",
        "share of prompt tokens that decode computed itself, over the judged window (0-1)",
        labels=WORKER,
    )
    to_full = GaugeMetricFamily(
        "pdops_kv_cache_time_to_full_seconds",
        "time until the KV cache is full at the rise of the last five minutes; absent while it does not rise",
        labels=WORKER,
    )
    by_rank = GaugeMetricFamily(
        "pdops_rank_kv_cache_usage",
        "fraction of the KV pool in use, by data-parallel rank of an engine with several",
        labels=(*WORKER, "rank"),
    )
    for page in snapshot.pages:
        for place, rank in page.derive(__name__, partial(_ranks, page)):
            if np.isfinite(page.now[place]):
                by_rank.add_metric([*worker_values(snapshot.cluster, page.worker), rank], float(page.now[place]))
    for worker, signals in newest(snapshot):
        labels = worker_values(snapshot.cluster, worker)
        for tier, (asked, found) in TIERS.items():
            if asked in signals:
                queries.add_metric([*labels, tier], signals[asked])
            if found in signals:
                hits.add_metric([*labels, tier], signals[found])
        if worker.role is Role.DECODE:
            share = snapshot.ask.ratio(worker.id, "local_prefill_tokens", "prompt_tokens")
            if share.value is not None:
                recompute.add_metric(labels, min(1.0, share.value))
        left = time_to_full(snapshot, worker.id)
        if left is not None:
            to_full.add_metric(labels, left)
    yield from (queries, hits, recompute, to_full, by_rank)


def _ranks(page: Page) -> list[tuple[int, str]]:
    return [
        (place, clean(column.part.removeprefix("rank=")))
        for place, column in enumerate(page.columns)
        if column.signal == "kv_cache_usage" and column.part.startswith("rank=")
    ]


def time_to_full(snapshot: Snapshot, worker: str) -> float | None:
    """Return the seconds until a worker's KV cache is full at its present rise, or None when it does not rise.

    A straight line through the last five minutes (least squares); None with fewer than ten samples.
    """
    given = [s for s in snapshot.view.series.get((worker, "kv_cache_usage"), ()) if isinstance(s, Series)]
    if not given:
        return None
    inside = given[0].t >= snapshot.view.at_s - SLOPE_S
    t, used = given[0].t[inside], given[0].v[inside]
    if len(t) < LEAST_SAMPLES or t[-1] <= t[0]:
        return None
    slope = float(np.polyfit(t - t[-1], used, 1)[0])
    return max(0.0, (1.0 - float(used[-1])) / slope) if slope > LEAST_RISE else None
