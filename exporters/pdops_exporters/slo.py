"""What share of requests kept the promise: exact where a router counts it, else the interval that buckets allow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from pdops.diagnose.attainment import attainment as attained_share
from pdops.model.cluster import CLIENT, Role
from pdops_exporters.labels import CLUSTER, cluster_values
from pdops_exporters.watched import Page, Snapshot


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
    events = CounterMetricFamily(
        "pdops_slo_events",
        "requests (ttft, failures included) or token gaps (itl) that a promise holds for; source is client where a "
        "router measures, else decode, whose TTFT leaves out the prefill leg",
        labels=(*CLUSTER, "slo", "source"),
    )
    good = CounterMetricFamily(
        "pdops_slo_good_events",
        "of these, within the promise: surely (low) and possibly (high), as bucket edges allow",
        labels=(*CLUSTER, "slo", "source", "bound"),
    )
    slo = snapshot.cluster.slo
    target.add_metric(labels, slo.attainment)
    for name, signal, promised in (("ttft", "ttft_seconds", slo.ttft_s), ("itl", "itl_seconds", slo.itl_s)):
        if promised is None:
            continue
        objective.add_metric([*labels, name], promised)
        counted = count(snapshot, signal, promised)
        if counted is not None:
            events.add_metric([*labels, name, counted.source], counted.events)
            good.add_metric([*labels, name, counted.source, "low"], counted.surely)
            good.add_metric([*labels, name, counted.source, "high"], counted.possibly)
        interval = attainment(snapshot, signal, promised)
        if interval is not None:
            for bound, value in zip(("low", "high"), interval, strict=True):
                attained.add_metric([*labels, name, bound], value)
    yield from (objective, target, attained, events, good)


@dataclass(frozen=True, slots=True)
class Counted:
    """Events since this process first saw them, and how many were surely and possibly within the promise."""

    source: str
    events: float
    surely: float
    possibly: float


def count(snapshot: Snapshot, signal: str, promised_s: float) -> Counted | None:
    """Return the events of a promise, or None when nobody tells of them."""
    for source in (CLIENT, Role.DECODE.value):
        events = surely = possibly = 0.0
        found = False
        for page in snapshot.pages:
            scope = CLIENT if source == CLIENT else ""
            if source != CLIENT and page.worker.role is not Role.DECODE:
                continue
            edges: list[tuple[float, float]] = []
            total = math.nan
            places = page.derive(f"{__name__} {signal} {scope}", partial(_places, page, signal, scope))
            for place, edge in places:
                grown = float(page.grown[place])
                if not math.isfinite(grown):
                    continue
                if edge is None:
                    events += grown
                elif math.isnan(edge):
                    total = grown
                else:
                    edges.append((edge, grown))
            if not edges or math.isnan(total):
                continue
            found = True
            # Buckets come with whole pages only; their own last edge counts the same events as they do.
            total = max(edges)[1]
            events += total
            surely += max((n for edge, n in edges if edge <= promised_s), default=0.0)
            possibly += min((n for edge, n in edges if edge >= promised_s), default=total)
        if found:
            # An engine's own TTFT leaves out the prefill leg: within the promise there is not surely within it for a client.
            if source != CLIENT and signal == "ttft_seconds":
                surely = 0.0
            return Counted(source, events, surely, possibly)
    return None


def _places(page: Page, signal: str, scope: str) -> list[tuple[int, float | None]]:
    """Return the places of a histogram's buckets by edge, of its count (NaN) and of failures at clients (None)."""
    found: list[tuple[int, float | None]] = []
    for place, column in enumerate(page.columns):
        if column.scope != scope:
            continue
        if column.signal == signal and column.part.startswith("le="):
            found.append((place, float(column.part.removeprefix("le="))))
        elif column.signal == signal and column.part == "count":
            found.append((place, math.nan))
        elif column.signal == "request_failure" and signal == "ttft_seconds" and scope == CLIENT:
            found.append((place, None))
    return found


def attainment(snapshot: Snapshot, signal: str, promised_s: float) -> tuple[float, float] | None:
    """Return the least and greatest share (0-1) of events within a promise over the judged window; None unknown."""
    found = attained_share(snapshot.ask, signal, promised_s)
    return (found.low, found.high) if found is not None else None
