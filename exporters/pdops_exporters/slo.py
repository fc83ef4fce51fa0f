"""What share of requests kept the promise: exact where a router counts it, else the interval that buckets allow."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from pdops.model.cluster import CLIENT, Role, pool_key
from pdops.model.series import HistogramSeries
from pdops.stats import histograms
from pdops_exporters.labels import CLUSTER, cluster_values
from pdops_exporters.watched import Snapshot


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the SLO itself and attainment over the judged window, as an interval."""
    labels = cluster_values(snapshot.cluster)
    objective = GaugeMetricFamily("pdops_slo_seconds", "latency that is promised", labels=(*CLUSTER, "slo"))
    target = GaugeMetricFamily("pdops_slo_objective_ratio", "share of requests that must keep it (0-1)", labels=CLUSTER)
    attained = GaugeMetricFamily(
        "pdops_slo_attainment_ratio",
        "share of requests within the promise, over the judged window (0-1); low and high differ where the promise lies "
        "between two bucket edges",
        labels=(*CLUSTER, "slo", "bound"),
    )
    slo = snapshot.cluster.slo
    target.add_metric(labels, slo.attainment)
    for name, signal, promised in (("ttft", "ttft_seconds", slo.ttft_s), ("itl", "itl_seconds", slo.itl_s)):
        if promised is None:
            continue
        objective.add_metric([*labels, name], promised)
        interval = attainment(snapshot, signal, promised)
        if interval is not None:
            for bound, value in zip(("low", "high"), interval, strict=True):
                attained.add_metric([*labels, name, bound], value)
    yield from (objective, target, attained)


def attainment(snapshot: Snapshot, signal: str, promised_s: float) -> tuple[float, float] | None:
    """Return the least and greatest share (0-1) of events within a promise, failures counted as broken; None unknown.

    At clients where a router tells, else on decode: an engine's own TTFT leaves out the prefill leg, so that share is
    an upper bound only and its lower end is zero.
    """
    window = snapshot.view.now
    scopes = (
        [CLIENT] if snapshot.ask.has(CLIENT, signal) else [pool_key(p) for p in snapshot.cluster.pools(Role.DECODE)]
    )
    grown = [
        g
        for scope in scopes
        for _, series in snapshot.ask.parts(scope, signal)
        if isinstance(series, HistogramSeries)
        and (g := histograms.growth(series, window.start_s, window.end_s)) is not None
    ]
    merged = histograms.merge(grown)
    if merged is None or merged.counts is None:
        return None
    above = histograms.share_above(merged.bounds, merged.counts, promised_s)
    if above is None:
        return None
    low, high = 1.0 - above[1], 1.0 - above[0]
    failed = snapshot.ask.increase(scopes[0], "request_failure", window).value if len(scopes) == 1 else None
    if failed and signal == "ttft_seconds":
        kept = merged.total / (merged.total + failed)
        low, high = low * kept, high * kept
    if scopes != [CLIENT] and signal == "ttft_seconds":
        low = 0.0
    return low, high
