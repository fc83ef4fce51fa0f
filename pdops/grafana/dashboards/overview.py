"""Whether the promise is kept, and if not, which stage takes the time."""

from __future__ import annotations

from pdops.grafana.dashboards.panel import ALL, DECODE, PREFILL, RATE, Dashboard, Panel, Query, Row


def _stage(family: str, where: str) -> str:
    return f"sum by (cluster) (rate({family}_sum{{{where}}}{RATE})) / sum by (cluster) (rate({family}_count{{{where}}}{RATE}))"


def _promised(slo: str) -> tuple[Query, ...]:
    """Return what clients see of a latency, and what they were promised."""
    buckets = f"sum by (le, cluster) (rate(pdops_client_{slo}_seconds_bucket{{{ALL}}}{RATE}))"
    seen = [
        Query(f"histogram_quantile({q}, {buckets})", f"p{round(q * 100)} {{{{cluster}}}}") for q in (0.5, 0.95, 0.99)
    ]
    objective = f'max by (cluster) (pdops_slo_seconds{{{ALL},slo="{slo}"}})'
    return (*seen, Query(objective, "promised {{cluster}}"))


SLO = Row(
    "Is the promise kept?",
    (
        Panel(
            id="overview/ttft",
            title="TTFT at clients",
            bad="Above the promise: read the TTFT budget below and open the dashboard of the stage that grew.",
            unit="s",
            queries=_promised("ttft"),
        ),
        Panel(
            id="overview/itl",
            title="ITL at clients",
            bad="Above the promise while TTFT is fine: decode steps are slow; open Decode.",
            unit="s",
            queries=_promised("itl"),
        ),
        Panel(
            id="overview/slo-attainment",
            title="SLO attainment",
            bad="Below the objective: users feel it. Low and high are what bucket edges allow; put an edge at the promise to close the gap.",
            unit="percentunit",
            queries=(
                Query(f"pdops_slo_attainment_ratio{{{ALL}}}", "{{slo}} {{bound}}"),
                Query(f"pdops_slo_objective_ratio{{{ALL}}}", "objective"),
            ),
            max=1.0,
        ),
        Panel(
            id="overview/goodput",
            title="Goodput: requests per second within the TTFT promise",
            bad="Falls while requests do not: work is done too late. Shed load or find the slow stage.",
            unit="reqps",
            queries=(
                Query(
                    f'sum by (cluster, bound) (rate(pdops_slo_good_events_total{{{ALL},slo="ttft"}}{RATE}))',
                    "good, {{bound}}",
                ),
                Query(f'sum by (cluster) (rate(pdops_slo_events_total{{{ALL},slo="ttft"}}{RATE}))', "all"),
            ),
        ),
        Panel(
            id="overview/burn",
            title="Error budget burn rate",
            bad="1 uses the budget up exactly in its period; 10 pages within minutes.",
            unit="none",
            queries=(
                Query(
                    f'(1 - sum by (cluster, slo) (rate(pdops_slo_good_events_total{{{ALL},bound="high"}}{RATE}))'
                    f" / sum by (cluster, slo) (rate(pdops_slo_events_total{{{ALL}}}{RATE})))"
                    f" / on (cluster) group_left () (1 - max by (cluster) (pdops_slo_objective_ratio{{{ALL}}}))",
                    "{{slo}}",
                ),
            ),
            steps=((0, "green"), (1, "yellow"), (5, "orange"), (10, "red")),
        ),
        Panel(
            id="overview/errors",
            title="Failed requests at clients",
            bad="Anything above zero that stays: read findings, then the router's log by request.",
            unit="reqps",
            queries=(
                Query(f"sum by (cluster) (rate(pdops_client_request_failure_total{{{ALL}}}{RATE}))", "failed"),
                Query(
                    f"sum by (cluster) (rate(pdops_client_request_timeouts_total{{{ALL}}}{RATE}))", "of them timeouts"
                ),
                Query(f"sum by (cluster) (rate(pdops_client_empty_completions_total{{{ALL}}}{RATE}))", "of them empty"),
            ),
        ),
        Panel(
            id="overview/aborts",
            title="Requests that clients gave up",
            bad="Rising with TTFT: clients lose patience; the prefill they leave behind holds KV until its lease ends.",
            unit="reqps",
            queries=(Query(f"sum by (cluster) (rate(pdops_client_aborts_total{{{ALL}}}{RATE}))", "{{cluster}}"),),
        ),
    ),
)

BUDGET = Row(
    "Where is TTFT spent?",
    (
        Panel(
            id="overview/ttft-budget",
            title="TTFT budget across prefill and decode (mean by stage)",
            bad="The stage that grew is where to look: prefill queue and compute on Prefill, KV transfer on KV transfer, decode wait on Decode.",
            unit="s",
            kind="stack",
            width=16,
            queries=(
                Query(_stage("pdops_queue_seconds", PREFILL), "prefill queue"),
                Query(_stage("pdops_prefill_seconds", PREFILL), "prefill compute"),
                Query(_stage("pdops_kv_transfer_seconds", DECODE), "KV transfer"),
                Query(
                    f"clamp_min({_stage('pdops_queue_seconds', DECODE)} - {_stage('pdops_kv_transfer_seconds', DECODE)}, 0)",
                    "decode wait besides KV transfer",
                ),
                Query(
                    f"clamp_min({_stage('pdops_client_ttft_seconds', ALL)} - {_stage('pdops_ttft_seconds', DECODE)}"
                    f" - {_stage('pdops_ttft_seconds', PREFILL)}, 0)",
                    "router and network",
                ),
            ),
        ),
        Panel(
            id="overview/handoff",
            title="Hand-off at the router, by pair (mean)",
            bad="One row or column slow: that worker. All slow: the link or the router.",
            unit="s",
            queries=(
                Query(
                    f"rate(pdops_pair_handoff_seconds_sum{{{ALL}}}{RATE}) / rate(pdops_pair_handoff_seconds_count{{{ALL}}}{RATE})",
                    "{{src}} > {{dst}}",
                ),
            ),
        ),
        Panel(
            id="overview/tokens",
            title="Tokens per second",
            bad="Prompt tokens rise and output tokens do not: decode is behind; the reverse: prefill is.",
            unit="none",
            queries=(
                Query(f"sum by (cluster) (rate(pdops_prompt_tokens_total{{{PREFILL}}}{RATE}))", "prompt, prefill"),
                Query(f"sum by (cluster) (rate(pdops_generated_tokens_total{{{DECODE}}}{RATE}))", "output, decode"),
            ),
        ),
        Panel(
            id="overview/progress",
            title="Running requests beside progress",
            bad="Requests run and no token comes: a hang. Look at its log, then restart the guilty side, not the victim.",
            unit="none",
            queries=(
                Query(f"sum by (cluster) (pdops_running_requests{{{DECODE}}})", "running, decode"),
                Query(f"sum by (cluster) (rate(pdops_generated_tokens_total{{{DECODE}}}{RATE}))", "output tokens/s"),
            ),
        ),
        Panel(
            id="overview/pools",
            title="Running and waiting by role",
            bad="One role waits while the other idles: the ratio does not fit the load; see Capacity.",
            unit="none",
            queries=(
                Query(
                    f'sum by (cluster, role) (pdops_running_requests{{{ALL},role=~"prefill|decode"}})',
                    "running {{role}}",
                ),
                Query(
                    f'sum by (cluster, role) (pdops_queue_depth{{{ALL},role=~"prefill|decode"}})', "waiting {{role}}"
                ),
            ),
        ),
    ),
)

DATA = Row(
    "Can the data be trusted?",
    (
        Panel(
            id="overview/verdict",
            title="Verdict of the diagnosis",
            bad="fault or overload: open Diagnosis. unknown is not healthy: read what is missing.",
            unit="none",
            kind="states",
            queries=(Query(f"max by (cluster, verdict) (pdops_verdict{{{ALL}}}) == 1", "{{cluster}} {{verdict}}"),),
        ),
        Panel(
            id="overview/data-age",
            title="Age of the newest page by worker",
            bad="Above three scrape intervals the numbers of that worker are history. Check that its page answers.",
            unit="s",
            queries=(Query(f"max by (worker) (pdops_scrape_age_seconds{{{ALL}}})", "{{worker}}"),),
            steps=((0, "green"), (15, "yellow"), (60, "red")),
        ),
        Panel(
            id="overview/workers-up",
            title="Workers that answer, by role",
            bad="Fewer than there should be: open the role's dashboard, look at restarts, then at the worker's log.",
            unit="none",
            queries=(
                Query(f"sum by (cluster, role) (pdops_worker_up{{{ALL}}})", "{{role}} up"),
                Query(f"count by (cluster, role) (pdops_worker_up{{{ALL}}})", "{{role}} in all"),
            ),
        ),
        Panel(
            id="overview/restarts",
            title="Restarts by worker",
            bad="More than one in ten minutes is a loop: read the end of the last life in its log. A restarted prefill leaves decode with stale state.",
            unit="none",
            seen_in="decode-killed-replaced",
            queries=(Query(f"increase(pdops_worker_restarts_total{{{ALL}}}{RATE})", "{{worker}}"),),
        ),
        Panel(
            id="overview/host-memory",
            title="Resident memory of the serving process",
            bad="Rises without end: a leak outside the KV pool; see host/rcache and host/memory-growth in pdops explain.",
            unit="bytes",
            queries=(Query(f"max by (worker) (pdops_host_memory_bytes{{{ALL}}})", "{{worker}}"),),
        ),
    ),
)

ROUTING = Row(
    "Routing",
    (
        Panel(
            id="routing/skew",
            title="Requests routed to each worker, share of the mean",
            bad="Far from 1 for long: policy, stale data or a prefix hot spot.",
            unit="none",
            queries=(
                Query(
                    f"rate(pdops_router_view_worker_selection_total{{{ALL}}}{RATE})"
                    f" / on (cluster) group_left () avg by (cluster) (rate(pdops_router_view_worker_selection_total{{{ALL}}}{RATE}))",
                    "{{worker}}",
                ),
            ),
        ),
        Panel(
            id="routing/excluded",
            title="Health of workers as the router sees it",
            bad="0 here while the worker itself answers: the router's health check or breaker is wrong; see router/excludes-healthy.",
            unit="none",
            queries=(Query(f"min by (worker) (pdops_router_view_worker_health{{{ALL}}})", "{{worker}}"),),
            max=1.0,
        ),
        Panel(
            id="routing/client-vs-engine",
            title="TTFT at clients beside the engines' own (mean)",
            bad="Clients wait much longer than the engines say: the time is lost before or between them, in the router.",
            unit="s",
            queries=(
                Query(_stage("pdops_client_ttft_seconds", ALL), "clients"),
                Query(_stage("pdops_ttft_seconds", PREFILL), "prefill leg"),
                Query(_stage("pdops_ttft_seconds", DECODE), "decode leg"),
            ),
        ),
        Panel(
            id="routing/held",
            title="Requests in the router beside those that end",
            bad="Requests stand in it and none ends while the engines are idle: it has lost its workers. Read its own list of them.",
            unit="none",
            queries=(
                Query(f"sum by (cluster) (pdops_router_view_running_requests{{{ALL}}})", "in the router"),
                Query(
                    f"sum by (cluster) (rate(pdops_client_request_success_total{{{ALL}}}{RATE}))", "ending per second"
                ),
            ),
        ),
        Panel(
            id="routing/prefill-failures",
            title="Failures of prefill beside those clients see",
            bad="Prefill fails and clients do not see it: somebody computes the prompt again, on decode.",
            unit="reqps",
            queries=(
                Query(f"sum by (cluster) (rate(pdops_request_failure_total{{{PREFILL}}}{RATE}))", "prefill"),
                Query(f"sum by (cluster) (rate(pdops_client_request_failure_total{{{ALL}}}{RATE}))", "clients"),
            ),
        ),
    ),
)

DASHBOARD = Dashboard(
    "overview",
    "PD overview",
    "Is the promise kept, which stage takes the time, and can the data be trusted.",
    (SLO, BUDGET, DATA, ROUTING),
)
