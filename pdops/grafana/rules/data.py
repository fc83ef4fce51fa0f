"""Alerts on the data itself, on hosts and processes, and the one that always fires, so that silence is noticed."""

from __future__ import annotations

from pdops.grafana.rules.promql import cluster, on, per_cluster, per_worker, series, worker
from pdops.grafana.rules.types import CLUSTER, WORKER, Alert, Group, Value
from pdops.model.report import Symptom

_MEMORY = "pdops_host_memory_bytes"
_LEAK = f"{100e6 / 60:.0f}"
"""Bytes/s: 100 MB a minute, the threshold of host/memory-growth."""
_YOUNG = "(time() - " + per_worker("pdops_process_start_seconds") + ") < 900"


def _grown(memory: str, began_s: float) -> dict[str, Value]:
    """Return test series of one worker's memory and of when its process began."""
    return {worker(_MEMORY, "decode"): memory, worker("pdops_process_start_seconds", "decode"): began_s}


def groups() -> tuple[Group, ...]:
    """Return the groups."""
    return (Group(name="pdops-process-alerts", alerts=_PROCESSES), Group(name="pdops-data-alerts", alerts=_DATA))


_PROCESSES = (
    Alert(
        name="PDRestartLoop",
        expr=per_worker("increase(pdops_worker_restarts_total[15m])") + " > 1.5",
        for_="0m",
        severity="critical",
        summary="{{ $labels.worker }} of {{ $labels.cluster }} restarts again and again",
        do="Read the last lines before each end; take the worker out of the router until it holds. Do not restart its peers.",
        check="startup/restart-loop",
        cause="engine-crash",
        inputs={worker("pdops_worker_restarts_total", "decode"): ("0x8 1x30", "0x5 1x4 2x30")},
        names={"worker": "decode-0"},
        horizon_m=15,
        more={
            "two restarts, and then one of the exporter": (
                {worker("pdops_worker_restarts_total", "decode"): "0x5 1x4 2x3 0x8"},
                True,
            ),
        },
    ),
    Alert(
        name="PDHostMemoryGrowing",
        expr=f"{per_worker(f'deriv({_MEMORY}[15m])')} > {_LEAK} and {on(WORKER)} "
        f"{per_worker(f'deriv({_MEMORY}[5m])')} > 0.5 * {_LEAK} unless {on(WORKER)} {_YOUNG}",
        summary="Host memory of {{ $labels.worker }} in {{ $labels.cluster }} grows by more than 100 MB a minute",
        do="Restart the worker before its host kills it, after draining it; keep a heap profile or its logs for the report.",
        check="host/memory-growth",
        cause="host-mem-leak",
        inputs={
            worker(_MEMORY, "decode"): ("0+99000000x60", "0+101000000x60"),
            worker("pdops_process_start_seconds", "decode"): "0x60",
        },
        names={"worker": "decode-0"},
        optional=frozenset({worker("pdops_process_start_seconds", "decode")}),
        horizon_m=30,
        more={
            "a process younger than a quarter of an hour still loads": (_grown("0+200000000x60", 1300), False),
            "a process a little older does not": (_grown("0+200000000x60", 750), True),
            "it grew and stopped": (_grown("0+150000000x30 4545000000+45000000x10", 0), False),
            "it grew and goes on more slowly": (_grown("0+150000000x30 4545000000+55000000x10", 0), True),
        },
    ),
)
_DATA = (
    Alert(
        name="PDNoData",
        expr=per_worker('pdops_worker_presence{presence=~"stale|never"}') + " == 1",
        severity="warning",
        summary="Metrics of {{ $labels.role }} worker {{ $labels.worker }} in {{ $labels.cluster }} are missing or stale",
        do="Check address, path, and that metrics are switched on. Nothing is known of this worker; other alerts about it cannot "
        "fire, and its silence is not health.",
        check="telemetry/no-data",
        cause="telemetry-gap",
        inputs={
            worker("pdops_worker_presence", "decode", presence="stale"): (0, 1),
            worker("pdops_worker_presence", "decode", presence="up"): (1, 0),
        },
        names={"worker": "decode-0"},
        optional=frozenset({worker("pdops_worker_presence", "decode", presence="up")}),
    ),
    Alert(
        name="PDMetricNamesEscaped",
        expr=per_worker("pdops_names_escaped") + " == 1",
        summary="Metric names of {{ $labels.worker }} in {{ $labels.cluster }} arrive with the colon replaced",
        do="pdops reads them all the same; dashboards and rules that ask for vllm: find nothing. Relabel vllm_(.+) to vllm:$1 in "
        "the scrape configuration, or ask for the text format that does not escape.",
        check="telemetry/names-escaped",
        cause="telemetry-gap",
        inputs={worker("pdops_names_escaped", "decode"): (0, 1)},
        names={"worker": "decode-0"},
    ),
    Alert(
        name="PDExporterAbsent",
        expr="absent(pdops_exporter_info)",
        keeps=(),
        severity="critical",
        summary="No pdops exporter is scraped: nothing is known of any cluster",
        do="Start `pdops exporter`, or mend its scrape. Every other alert of these rules is blind until then.",
        symptom=Symptom.NO_DATA,
        pool="all",
        board="diagnosis",
        inputs={series("pdops_exporter_info", version="0"): 1},
        absence=True,
    ),
    Alert(
        name="PDExporterStuck",
        expr=per_cluster("increase(pdops_exporter_frames_total[5m])", "max") + " == 0",
        keeps=CLUSTER,
        severity="critical",
        summary="The exporter of {{ $labels.cluster }} answers and reads no worker any more",
        do="What it serves is old. Read its log and restart it; its counters survive that.",
        symptom=Symptom.NO_DATA,
        pool="all",
        board="diagnosis",
        inputs={cluster("pdops_exporter_frames_total"): (0.01, 0)},
        names={"cluster": "c1"},
    ),
    Alert(
        name="PDExporterPartBlind",
        expr="max by (subject) (increase(pdops_exporter_subject_errors_total[10m])) > 0",
        keeps=("subject",),
        for_="0m",
        summary="The exporter cannot make the families of {{ $labels.subject }}",
        do="A defect of pdops: its log has the error. The other families are right.",
        symptom=Symptom.NO_DATA,
        pool="all",
        board="diagnosis",
        inputs={series("pdops_exporter_subject_errors_total", subject="slo"): (0, 0.01)},
        names={"subject": "slo"},
    ),
    Alert(
        name="Watchdog",
        expr="vector(1)",
        keeps=(),
        for_="0m",
        severity="none",
        summary="Alerting works",
        do="Always fires. When it no longer arrives, Prometheus, Alertmanager or the way between them does not work.",
        symptom=Symptom.NO_DATA,
        pool="all",
    ),
)
