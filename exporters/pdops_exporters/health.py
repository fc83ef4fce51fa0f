"""Whether the data can be trusted: who answers, how old it is, what reading it costs."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from pdops.model.frame import Scrape
from pdops.model.view import Presence
from pdops_exporters.labels import CLUSTER, WORKER, cluster_values, worker_values
from pdops_exporters.readings import newest
from pdops_exporters.watched import Snapshot


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield presence, age, size and duration of every worker's page, restarts, and the cost of taking them in."""
    cluster, view = snapshot.cluster, snapshot.view
    up = GaugeMetricFamily("pdops_worker_up", "1 while the worker's pages are read and fresh", labels=WORKER)
    presence = GaugeMetricFamily(
        "pdops_worker_presence", "1 for how the worker is seen: up, stale, down, never", labels=(*WORKER, "presence")
    )
    age = GaugeMetricFamily(
        "pdops_scrape_age_seconds", "age of the newest page; absent before the first", labels=WORKER
    )
    took = GaugeMetricFamily(
        "pdops_scrape_seconds", "time the slowest of the worker's newest pages took to come", labels=WORKER
    )
    size = GaugeMetricFamily("pdops_scrape_bytes", "size of the worker's newest pages", labels=WORKER)
    restarts = CounterMetricFamily("pdops_worker_restarts", "restarts seen by this exporter", labels=WORKER)
    start = GaugeMetricFamily("pdops_process_start_seconds", "Unix time the worker's process began", labels=WORKER)
    escaped = GaugeMetricFamily(
        "pdops_names_escaped", "1 while a worker's page has ':' written as '_' in its metric names", labels=WORKER
    )
    began = {worker.id: signals.get("process_start_seconds") for worker, signals in newest(snapshot)}
    pages: dict[str, list[Scrape]] = {}
    for page in snapshot.pages:
        pages.setdefault(page.worker.id, []).append(page.scrape)
    unknown = GaugeMetricFamily(
        "pdops_unknown_series",
        "samples of the worker's newest pages that no signal of the catalog reads, creation times included",
        labels=WORKER,
    )
    malformed = GaugeMetricFamily(
        "pdops_malformed_lines",
        "lines of the worker's newest pages that cannot be read or repeat a series",
        labels=WORKER,
    )
    broken = {note.worker for note in view.notes if note.code == "names-escaped"}
    for worker in cluster.workers:
        labels = worker_values(cluster, worker)
        health = view.health[worker.id]
        up.add_metric(labels, float(health.presence is Presence.UP))
        for kind in (Presence.UP, Presence.STALE, Presence.DOWN, Presence.NEVER):
            presence.add_metric([*labels, kind.value], float(health.presence is kind))
        if health.age_s is not None:
            age.add_metric(labels, health.age_s)
        mine = pages.get(worker.id)
        if mine is not None:
            took.add_metric(labels, max(s.duration_s for s in mine))
            size.add_metric(labels, float(sum(s.size_bytes for s in mine)))
            malformed.add_metric(labels, float(sum(s.malformed for s in mine)))
            unread = [s.unread for s in mine if s.unread is not None]
            if unread:
                unknown.add_metric(labels, float(sum(unread)))
            escaped.add_metric(labels, float(worker.id in broken))
        restarts.add_metric(labels, float(snapshot.restarts.get(worker.id, 0)))
        since = began.get(worker.id)
        if since is not None:
            start.add_metric(labels, since)
    frames = CounterMetricFamily("pdops_exporter_frames", "rounds of scraping taken in", labels=CLUSTER)
    frames.add_metric(cluster_values(cluster), float(snapshot.frames))
    cost = GaugeMetricFamily(
        "pdops_exporter_frame_seconds", "time the newest round took to be taken in", labels=CLUSTER
    )
    cost.add_metric(cluster_values(cluster), snapshot.took_s)
    yield from (up, presence, age, took, size, restarts, start, escaped, unknown, malformed, frames, cost)
