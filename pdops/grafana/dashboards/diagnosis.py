"""What pdops concludes, on what evidence, and what it could not see."""

from __future__ import annotations

from pdops.grafana.dashboards.panel import ALL, Dashboard, Panel, Query, Row

FINDINGS = Row(
    "Findings",
    (
        Panel(
            id="diagnosis/findings",
            title="Findings now, with confidence",
            bad="Run pdops diagnose for the evidence, and pdops explain CHECK for what to do.",
            unit="percentunit",
            kind="table",
            width=16,
            seen_in="prefill-killed",
            queries=(
                Query(
                    f"max by (cluster, cause, check, layer, scope, fault) (pdops_finding{{{ALL}}})", "", instant=True
                ),
            ),
        ),
        Panel(
            id="diagnosis/verdict",
            title="Verdict",
            bad="unknown is not healthy: see what is missing.",
            unit="none",
            kind="stat",
            queries=(Query(f"max by (verdict) (pdops_verdict{{{ALL}}}) == 1", "{{verdict}}"),),
        ),
        Panel(
            id="diagnosis/confidence",
            title="Confidence by cause over time",
            bad="Below 0.5 pdops accuses nobody.",
            unit="percentunit",
            seen_in="prefill-killed",
            queries=(Query(f"max by (cause) (pdops_finding{{{ALL}}})", "{{cause}}"),),
            max=1.0,
        ),
        Panel(
            id="diagnosis/symptoms",
            title="Symptoms",
            bad="What the person on call sees first; the findings say why.",
            unit="none",
            kind="states",
            queries=(Query(f"max by (symptom) (pdops_symptom{{{ALL}}})", "{{symptom}}"),),
        ),
        Panel(
            id="diagnosis/missing",
            title="Evidence that could not be had",
            bad="Each lowers confidence. pdops diagnose lists them with how to get them.",
            unit="none",
            queries=(Query(f"max by (cluster) (pdops_missing_evidence{{{ALL}}})", "{{cluster}}"),),
        ),
    ),
)

PROBES = Row(
    "Probes and starts",
    (
        Panel(
            id="diagnosis/probes",
            title="Newest canary and bandwidth probes",
            bad="0: a pair gives a wrong answer or does not move KV. Take it out of routing first, then look.",
            unit="none",
            kind="states",
            needs="no probe is part of the recordings",
            queries=(Query(f"min by (kind, target) (pdops_probe_success{{{ALL}}})", "{{kind}} {{target}}"),),
        ),
        Panel(
            id="diagnosis/preflight",
            title="Configuration: preflight checks that fail or are in doubt",
            bad="1: options of two workers do not fit, or a host lacks something. `pdops preflight` shows the values side by side.",
            unit="none",
            kind="states",
            queries=(
                Query(f'max by (check, status) (pdops_preflight{{{ALL},status=~"fail|warn"}})', "{{check}} {{status}}"),
            ),
        ),
        Panel(
            id="diagnosis/cold-start",
            title="Cold start: when each worker's process began",
            bad="Store, prefill, decode, router is the order. A worker that began before what it needs serves errors first.",
            unit="dateTimeAsIso",
            kind="table",
            queries=(Query(f"max by (role, worker) (pdops_process_start_seconds{{{ALL}}}) * 1000", "", instant=True),),
        ),
        Panel(
            id="diagnosis/presence",
            title="Presence of each worker",
            bad="stale is not up: its numbers are from before.",
            unit="none",
            kind="states",
            queries=(
                Query(f"max by (worker, presence) (pdops_worker_presence{{{ALL}}}) == 1", "{{worker}} {{presence}}"),
            ),
        ),
        Panel(
            id="diagnosis/exporter",
            title="What exporting costs",
            bad="Above the scrape interval the exporter is behind: fewer targets, or a longer --interval.",
            unit="s",
            queries=(
                Query(f"max by (cluster) (pdops_exporter_frame_seconds{{{ALL}}})", "taking a round in"),
                Query("max(pdops_exporter_collect_seconds)", "making the page"),
            ),
        ),
        Panel(
            id="diagnosis/escaped-names",
            title="Pages whose metric names lost their colon",
            bad="Queries that use vllm: find nothing there: relabel vllm_(.+) to vllm:$1 where it is scraped.",
            unit="none",
            queries=(Query(f"max by (worker) (pdops_names_escaped{{{ALL}}})", "{{worker}}"),),
        ),
        Panel(
            id="diagnosis/unread",
            title="Series that no signal reads, and lines that cannot be read",
            bad="A step after a release: metrics were renamed, and panels may be empty for that. Malformed lines: look with curl.",
            unit="none",
            needs="recordings keep the series that pdops reads, and no others",
            queries=(
                Query(f"max by (worker) (pdops_unknown_series{{{ALL}}})", "{{worker}} unread"),
                Query(f"max by (worker) (pdops_malformed_lines{{{ALL}}})", "{{worker}} malformed"),
            ),
        ),
    ),
)

DASHBOARD = Dashboard(
    "diagnosis",
    "PD diagnosis",
    "What is at fault, how sure, what is missing, and whether the data is good.",
    (FINDINGS, PROBES),
)
