"""What the diagnosis says now, and what probes found."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from pdops.model.report import Symptom, Verdict
from pdops_exporters.labels import CLUSTER, clean, cluster_values
from pdops_exporters.watched import Snapshot

MAX_SCOPES = 8
"""Scopes exported of one hypothesis; a fault of a whole pool names the pool."""


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the verdict, symptoms, findings with their confidence, and probe results."""
    labels, report = cluster_values(snapshot.cluster), snapshot.report
    verdict = GaugeMetricFamily("pdops_verdict", "1 for the verdict of now", labels=(*CLUSTER, "verdict"))
    for name in Verdict:
        verdict.add_metric([*labels, name.value], float(report.verdict is name))
    symptom = GaugeMetricFamily("pdops_symptom", "1 while a symptom is seen", labels=(*CLUSTER, "symptom"))
    for kind in Symptom:
        symptom.add_metric([*labels, kind.value], float(kind in report.symptoms))
    finding = GaugeMetricFamily(
        "pdops_finding",
        "confidence of a cause that is suspected now (0-1)",
        labels=(*CLUSTER, "cause", "check", "layer", "scope", "fault"),
    )
    seen: set[tuple[str, str]] = set()
    for hypothesis in report.hypotheses:
        for scope in hypothesis.scopes[:MAX_SCOPES] or (None,):
            where = clean(str(scope)) if scope is not None else ""
            if (hypothesis.cause, where) in seen:
                continue
            seen.add((hypothesis.cause, where))
            said = [hypothesis.cause, hypothesis.check, hypothesis.layer.value, where, str(hypothesis.fault)]
            finding.add_metric([*labels, *said], hypothesis.confidence)
    missing = GaugeMetricFamily("pdops_missing_evidence", "pieces of evidence that could not be had", labels=CLUSTER)
    missing.add_metric(labels, float(len(report.missing)))
    probe = GaugeMetricFamily(
        "pdops_probe_success",
        "1 when the newest probe was right, NaN when it could not be judged",
        labels=(*CLUSTER, "kind", "target"),
    )
    probed = GaugeMetricFamily(
        "pdops_probe_timestamp_seconds", "Unix time of the newest probe", labels=(*CLUSTER, "kind", "target")
    )
    for result in snapshot.probes:
        target = [*labels, result.kind.value, clean(result.pair or result.worker or "")]
        probe.add_metric(target, float("nan") if result.ok is None else float(result.ok))
        probed.add_metric(target, result.t_s)
    yield from (verdict, symptom, finding, missing, probe, probed)
