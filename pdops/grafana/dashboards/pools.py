"""The prefill and the decode pool: who waits for what, who is slow, what fills up."""

from __future__ import annotations

from pdops.grafana.dashboards.panel import DECODE, PREFILL, RATE, Dashboard, Panel, Query, Row


def _mean(family: str, where: str, by: str) -> str:
    return (
        f"sum by ({by}) (rate({family}_sum{{{where}}}{RATE})) / sum by ({by}) (rate({family}_count{{{where}}}{RATE}))"
    )


def _quantile(q: float, family: str, where: str, by: str) -> str:
    return f"histogram_quantile({q}, sum by (le, {by}) (rate({family}_bucket{{{where}}}{RATE})))"


def _hit_rate(where: str, tier: str) -> str:
    matchers = f'{where},tier="{tier}"'
    return (
        f"sum by (cluster) (rate(pdops_prefix_cache_hit_tokens_total{{{matchers}}}{RATE}))"
        f" / sum by (cluster) (rate(pdops_prefix_cache_query_tokens_total{{{matchers}}}{RATE}))"
    )


PREFILL_ROWS = (
    Row(
        "Queue",
        (
            Panel(
                id="prefill/queue",
                title="Requests that wait, by worker",
                bad="Grows and does not fall: prefill is behind. First see whether decode holds its KV (KV use below); only then scale out prefill.",
                unit="none",
                queries=(Query(f"sum by (worker) (pdops_queue_depth{{{PREFILL}}})", "{{worker}}"),),
            ),
            Panel(
                id="prefill/queue-by-reason",
                title="Requests that wait, by reason",
                bad="capacity: too few slots or blocks. deferred: they wait for something else, mostly KV.",
                unit="none",
                kind="stack",
                queries=(Query(f"sum by (reason) (pdops_queue_requests{{{PREFILL}}})", "{{reason}}"),),
            ),
            Panel(
                id="prefill/queue-time",
                title="Time in the queue (p95)",
                bad="Takes a growing part of TTFT: the pool is too small for the prompts that come.",
                unit="s",
                queries=(Query(_quantile(0.95, "pdops_queue_seconds", PREFILL, "worker"), "{{worker}}"),),
            ),
            Panel(
                id="prefill/workers-up",
                title="Prefill workers that answer",
                bad="One is missing: its share of requests fails or waits. Restart it; decode keeps state of the dead one until it hears of a new engine id.",
                unit="none",
                kind="states",
                queries=(Query(f"max by (worker) (pdops_worker_up{{{PREFILL}}})", "{{worker}}"),),
            ),
            Panel(
                id="prefill/rejections",
                title="Requests turned away by the engine",
                bad="Above zero: a queue limit works as set. Look whether it is meant to.",
                unit="reqps",
                queries=(
                    Query(f"sum by (worker) (rate(pdops_admission_rejections_total{{{PREFILL}}}{RATE}))", "{{worker}}"),
                ),
            ),
        ),
    ),
    Row(
        "Work",
        (
            Panel(
                id="prefill/time",
                title="Time to compute a prompt (p50, p95)",
                bad="One worker slower than its peers: throttling or a bad host. All slower: prompts grew (see lengths).",
                unit="s",
                queries=(
                    Query(_quantile(0.5, "pdops_prefill_seconds", PREFILL, "worker"), "p50 {{worker}}"),
                    Query(_quantile(0.95, "pdops_prefill_seconds", PREFILL, "worker"), "p95 {{worker}}"),
                ),
            ),
            Panel(
                id="prefill/computed-tokens",
                title="Prompt tokens computed per second",
                bad="Flat while the queue grows: this is the pool's capacity.",
                unit="none",
                queries=(
                    Query(f"sum by (worker) (rate(pdops_local_prefill_tokens_total{{{PREFILL}}}{RATE}))", "{{worker}}"),
                ),
            ),
            Panel(
                id="prefill/kv-generated",
                title="KV generated (bytes per second)",
                bad="Must fit through the KV link: compare with bytes moved and with the link's speed.",
                unit="Bps",
                queries=(
                    Query(f"sum by (worker) (rate(pdops_kv_generated_bytes_total{{{PREFILL}}}{RATE}))", "{{worker}}"),
                ),
            ),
            Panel(
                id="prefill/prompt-length",
                title="Prompt length (p50, p95)",
                bad="Longer prompts cost more than linearly. If it jumped, the workload changed, not the cluster.",
                unit="none",
                queries=(
                    Query(_quantile(0.5, "pdops_prompt_length", PREFILL, "cluster"), "p50"),
                    Query(_quantile(0.95, "pdops_prompt_length", PREFILL, "cluster"), "p95"),
                ),
            ),
            Panel(
                id="prefill/skew",
                title="Computed tokens by worker, share of the mean",
                bad="Far from 1: routing or one slow worker.",
                unit="none",
                queries=(
                    Query(
                        f"rate(pdops_local_prefill_tokens_total{{{PREFILL}}}{RATE}) / on (cluster) group_left ()"
                        f" avg by (cluster) (rate(pdops_local_prefill_tokens_total{{{PREFILL}}}{RATE}))",
                        "{{worker}}",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "KV on prefill",
        (
            Panel(
                id="prefill/kv-usage",
                title="KV cache in use",
                bad="Full with an empty queue: finished KV waits for decode to fetch it. More prefill does not help; look at decode and the link.",
                unit="percentunit",
                queries=(Query(f"max by (worker) (pdops_kv_cache_usage{{{PREFILL}}})", "{{worker}}"),),
                steps=((0, "green"), (0.7, "yellow"), (0.9, "red")),
                max=1.0,
            ),
            Panel(
                id="prefill/kv-held",
                title="Finished prefills whose KV was not fetched yet",
                bad="Grows: decode is slow, dead, or was never told. They are freed at the end of the lease and must be computed again.",
                unit="none",
                needs="needs the engine plugin or SGLang; recordings are of the stock connector",
                queries=(Query(f"sum by (worker) (pdops_kv_exports_outstanding{{{PREFILL}}})", "{{worker}}"),),
            ),
            Panel(
                id="prefill/kv-held-age",
                title="Age of the oldest KV that was not fetched yet",
                bad="Near the lease: decode comes too late, or never. A few seconds under load are ordinary.",
                unit="s",
                needs="needs the engine plugin; recordings are of the stock connector",
                queries=(Query(f"max by (worker) (pdops_kv_export_oldest_seconds{{{PREFILL}}})", "{{worker}}"),),
            ),
            Panel(
                id="prefill/prefix-hit-rate",
                title="Prefix cache hit rate on prefill, by tier",
                bad="Fell: evictions, a restart, another hash salt, or other prompts. TTFT follows within minutes.",
                unit="percentunit",
                queries=(
                    Query(_hit_rate(PREFILL, "local"), "local"),
                    Query(_hit_rate(PREFILL, "external"), "external"),
                ),
                max=1.0,
            ),
            Panel(
                id="prefill/bootstrap-queue",
                title="Requests that wait to meet their decode worker",
                bad="Grows: the two sides do not find each other; check addresses and the coordination service.",
                unit="none",
                needs="SGLang and TensorRT-LLM tell it; recordings are of vLLM",
                queries=(Query(f"sum by (worker) (pdops_prefill_queue_depth{{{PREFILL}}})", "{{worker}}"),),
            ),
        ),
    ),
)

DECODE_ROWS = (
    Row(
        "Steps",
        (
            Panel(
                id="decode/itl",
                title="ITL by worker (p50, p95, p99)",
                bad="One worker apart from its peers: that host. All: batch too large, KV full, or long outputs.",
                unit="s",
                queries=tuple(
                    Query(_quantile(q, "pdops_itl_seconds", DECODE, "worker"), f"p{round(q * 100)} {{{{worker}}}}")
                    for q in (0.5, 0.95, 0.99)
                ),
            ),
            Panel(
                id="decode/tpot",
                title="TPOT by worker (mean)",
                bad="Rises with running requests: normal batching. Rises alone: slower steps.",
                unit="s",
                queries=(Query(_mean("pdops_tpot_seconds", DECODE, "worker"), "{{worker}}"),),
            ),
            Panel(
                id="decode/running",
                title="Running and waiting by worker",
                bad="Waiting while running stays at the cap: slots are the limit. Waiting while running is low: KV or transfers are.",
                unit="none",
                queries=(
                    Query(f"sum by (worker) (pdops_running_requests{{{DECODE}}})", "running {{worker}}"),
                    Query(f"sum by (worker) (pdops_queue_depth{{{DECODE}}})", "waiting {{worker}}"),
                ),
            ),
            Panel(
                id="decode/output-length",
                title="Output length (p50, p95)",
                bad="Jumped: reasoning or another workload. Outputs eat decode slots and KV; TTFT rises before ITL does.",
                unit="none",
                queries=(
                    Query(_quantile(0.5, "pdops_output_length", DECODE, "cluster"), "p50"),
                    Query(_quantile(0.95, "pdops_output_length", DECODE, "cluster"), "p95"),
                ),
            ),
            Panel(
                id="decode/skew",
                title="ITL p95 by worker over the pool's median",
                bad="Above 1.5 for minutes: that worker is slower than its peers.",
                unit="none",
                queries=(
                    Query(
                        f"{_quantile(0.95, 'pdops_itl_seconds', DECODE, 'cluster, worker')} / on (cluster) group_left ()"
                        f" quantile by (cluster) (0.5, {_quantile(0.95, 'pdops_itl_seconds', DECODE, 'cluster, worker')})",
                        "{{worker}}",
                    ),
                ),
            ),
            Panel(
                id="decode/workers-up",
                title="Decode workers that answer",
                bad="One is missing: its requests are lost, and prefill holds their KV until the lease ends.",
                unit="none",
                kind="states",
                queries=(Query(f"max by (worker) (pdops_worker_up{{{DECODE}}})", "{{worker}}"),),
            ),
        ),
    ),
    Row(
        "KV on decode",
        (
            Panel(
                id="decode/kv-usage",
                title="KV cache in use",
                bad="Near full: preemptions follow. Shed load or scale out decode; do not scale prefill.",
                unit="percentunit",
                queries=(Query(f"max by (worker) (pdops_kv_cache_usage{{{DECODE}}})", "{{worker}}"),),
                steps=((0, "green"), (0.7, "yellow"), (0.9, "red")),
                max=1.0,
            ),
            Panel(
                id="decode/kv-usage-by-rank",
                title="KV cache in use, by data-parallel rank",
                bad="One rank full while others are not: requests are pinned to it; the node stands still with it.",
                unit="percentunit",
                needs="recordings have one rank a worker",
                queries=(
                    Query(f"max by (worker, rank) (pdops_rank_kv_cache_usage{{{DECODE}}})", "{{worker}} rank {{rank}}"),
                ),
                max=1.0,
            ),
            Panel(
                id="decode/time-to-full",
                title="Time until the KV cache is full",
                bad="Shorter than a new worker takes to start: act now. Absent while use does not rise.",
                unit="s",
                seen_in="decode-kv-exhaustion",
                queries=(Query(f"min by (worker) (pdops_kv_cache_time_to_full_seconds{{{DECODE}}})", "{{worker}}"),),
            ),
            Panel(
                id="decode/preemptions",
                title="Preemptions",
                bad="Above zero for minutes: KV is too small for what runs; every one is work done twice.",
                unit="reqps",
                seen_in="decode-kv-exhaustion",
                queries=(Query(f"sum by (worker) (rate(pdops_preemptions_total{{{DECODE}}}{RATE}))", "{{worker}}"),),
            ),
            Panel(
                id="decode/fetch-stages",
                title="Requests whose KV is on its way, by stage",
                bad="kv-fetch-to-start: no room or slot. kv-fetch-in-progress: the link. kv-fetch-done: no slot to run in.",
                unit="none",
                kind="stack",
                queries=(
                    Query(f'sum by (reason) (pdops_queue_requests{{{DECODE},reason=~"kv-fetch.*"}})', "{{reason}}"),
                ),
            ),
            Panel(
                id="decode/deferred",
                title="Requests that wait, by reason",
                bad="deferred stays up: they wait for KV that does not come; look at KV transfer.",
                unit="none",
                kind="stack",
                queries=(
                    Query(
                        f'sum by (reason) (pdops_queue_requests{{{DECODE},reason=~"capacity|deferred"}})', "{{reason}}"
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Recompute",
        (
            Panel(
                id="decode/local-prefill-share",
                title="Share of prompt tokens that decode computed itself",
                bad="About 0 in health. 1: PD is bypassed, the router drops kv_transfer_params. Between: transfers fail and are computed again.",
                unit="percentunit",
                queries=(Query(f"max by (worker) (pdops_decode_recompute_ratio{{{DECODE}}})", "{{worker}}"),),
                steps=((0, "green"), (0.05, "yellow"), (0.5, "red")),
                max=1.0,
            ),
            Panel(
                id="decode/external-tokens",
                title="Prompt tokens by where their KV came from",
                bad="The local part should be small and steady.",
                unit="none",
                kind="stack",
                queries=(
                    Query(f"sum by (cluster) (rate(pdops_external_kv_tokens_total{{{DECODE}}}{RATE}))", "fetched"),
                    Query(
                        f"sum by (cluster) (rate(pdops_local_prefill_tokens_total{{{DECODE}}}{RATE}))",
                        "computed by decode",
                    ),
                ),
            ),
            Panel(
                id="decode/prefix-hit-rate",
                title="Prefix cache hit rate on decode, by tier",
                bad="Compare with prefill's; the two are never one number.",
                unit="percentunit",
                queries=(
                    Query(_hit_rate(DECODE, "local"), "local"),
                    Query(_hit_rate(DECODE, "external"), "external"),
                ),
                max=1.0,
            ),
            Panel(
                id="decode/e2e",
                title="End to end on decode (p95)",
                bad="Long outputs make it long without any fault; compare with output length.",
                unit="s",
                queries=(Query(_quantile(0.95, "pdops_e2e_seconds", DECODE, "worker"), "{{worker}}"),),
            ),
        ),
    ),
)

PREFILL_DASHBOARD = Dashboard(
    "prefill", "PD prefill", "Who waits for prefill, how fast it computes, and whose KV it holds.", PREFILL_ROWS
)
DECODE_DASHBOARD = Dashboard(
    "decode",
    "PD decode",
    "How fast decode steps, how full its KV is, and what it computes that it should not.",
    DECODE_ROWS,
)
