"""KV on its way: links, pairs, leases, and the store."""

from __future__ import annotations

from pdops.grafana.dashboards.panel import ALL, DECODE, PREFILL, RATE, Dashboard, Panel, Query, Row, workers

STORE = workers("kvstore")
_PAIRS = "recordings are of the stock connector; per-pair transfers need the engine plugin"


def _quantile(q: float, family: str, where: str, by: str) -> str:
    return f"histogram_quantile({q}, sum by (le, {by}) (rate({family}_bucket{{{where}}}{RATE})))"


LINKS = Row(
    "Links",
    (
        Panel(
            id="kv-transfer/matrix",
            title="Bandwidth of a transfer, prefill (row) to decode (column)",
            bad="One slow row: the sender. One slow column: the receiver. One cell: that path. Empty cells were not used, or nobody tells.",
            unit="Bps",
            kind="table",
            width=16,
            needs=_PAIRS,
            queries=(
                Query(
                    f"sum by (src, dst) (rate(pdops_pair_kv_transfer_bytes_total{{{ALL}}}{RATE}))"
                    f" / sum by (src, dst) (rate(pdops_pair_kv_transfer_seconds_sum{{{ALL}}}{RATE}))",
                    "",
                    instant=True,
                ),
            ),
        ),
        Panel(
            id="kv-transfer/bandwidth",
            title="Bandwidth of one transfer, by worker (mean)",
            bad="Below half of its peers or its own past: the path is slow or fell back to another transport. Compare UCX_TLS and devices with a fast peer.",
            unit="Bps",
            queries=(
                Query(f"max by (worker) (pdops_kv_transfer_bandwidth_bytes_per_second{{{DECODE}}})", "{{worker}}"),
            ),
        ),
        Panel(
            id="kv-transfer/time",
            title="Transfer time by receiver (p50, p99)",
            bad="vLLM's own buckets end at 5 s: what stands there may be longer. The engine plugin's end at 60 s.",
            unit="s",
            queries=(
                Query(_quantile(0.5, "pdops_kv_transfer_seconds", DECODE, "worker"), "p50 {{worker}}"),
                Query(_quantile(0.99, "pdops_kv_transfer_seconds", DECODE, "worker"), "p99 {{worker}}"),
            ),
        ),
        Panel(
            id="kv-transfer/time-by-pair",
            title="Transfer time by pair (p99)",
            bad="Pairs apart from the others name the path.",
            unit="s",
            needs=_PAIRS,
            queries=(Query(_quantile(0.99, "pdops_pair_kv_transfer_seconds", ALL, "src, dst"), "{{src}} > {{dst}}"),),
        ),
        Panel(
            id="kv-transfer/heat",
            title="Transfer time, all receivers",
            bad="Two bands: some transfers take another path. A drift upwards: the link fills.",
            unit="s",
            kind="heat",
            queries=(Query(f"sum by (le) (increase(pdops_kv_transfer_seconds_bucket{{{DECODE}}}{RATE}))", "{{le}}"),),
        ),
        Panel(
            id="kv-transfer/bytes",
            title="KV moved beside KV generated",
            bad="Generated stays above moved: KV piles up on prefill.",
            unit="Bps",
            queries=(
                Query(f"sum by (cluster) (rate(pdops_kv_transfer_bytes_total{{{DECODE}}}{RATE}))", "moved"),
                Query(f"sum by (cluster) (rate(pdops_kv_generated_bytes_total{{{PREFILL}}}{RATE}))", "generated"),
            ),
        ),
        Panel(
            id="kv-transfer/in-progress",
            title="Transfers in flight (mean)",
            bad="Grows while bytes do not: transfers stand still; see transfer/stalled.",
            unit="none",
            queries=(
                Query(
                    f"sum by (worker) (rate(pdops_kv_transfer_seconds_sum{{{DECODE}}}{RATE}))",
                    "{{worker}}, time x rate",
                ),
                Query(
                    f'sum by (worker) (pdops_queue_requests{{{DECODE},reason="kv-fetch-in-progress"}})',
                    "{{worker}}, waiting",
                ),
            ),
        ),
        Panel(
            id="kv-transfer/post-time",
            title="Time to post a transfer (mean)",
            bad="Rises with the number of blocks of a request: descriptors. Rises alone: the library or the card is busy.",
            unit="s",
            queries=(
                Query(
                    f"sum by (worker) (rate(pdops_kv_transfer_post_seconds_sum{{{DECODE}}}{RATE}))"
                    f" / sum by (worker) (rate(pdops_kv_transfer_post_seconds_count{{{DECODE}}}{RATE}))",
                    "{{worker}}",
                ),
            ),
        ),
    ),
)

FAILURES = Row(
    "What goes wrong",
    (
        Panel(
            id="kv-transfer/failures",
            title="Failed transfers, by receiver",
            bad="On vLLM this counts failed handshakes and notifications too. Read the receiver's log for the first one.",
            unit="reqps",
            queries=(
                Query(f"sum by (worker) (rate(pdops_kv_transfer_failures_total{{{DECODE}}}{RATE}))", "{{worker}}"),
            ),
        ),
        Panel(
            id="kv-transfer/expired",
            title="KV that prefill freed before it was fetched",
            bad="Each is a prefill for nothing. Decode is too slow to fetch, died, or a client left.",
            unit="reqps",
            seen_in="prefill-abandoned",
            queries=(
                Query(f"sum by (worker) (rate(pdops_kv_transfer_expired_total{{{PREFILL}}}{RATE}))", "{{worker}}"),
            ),
        ),
        Panel(
            id="kv-transfer/read-after-expiry",
            title="KV read after its lease had ended",
            bad="Any: answers may be wrong with status 200. Run pdops canary, and lengthen the lease.",
            unit="none",
            queries=(Query(f"increase(pdops_kv_notifications_after_expiry_total{{{PREFILL}}}{RATE})", "{{worker}}"),),
            steps=((0, "green"), (1, "red")),
        ),
        Panel(
            id="kv-transfer/handshakes",
            title="First contact of pairs (mean), and failures",
            bad="Failures: the address prefill tells cannot be reached from decode.",
            unit="s",
            needs=_PAIRS,
            queries=(
                Query(
                    f"rate(pdops_pair_kv_handshake_seconds_sum{{{ALL}}}{RATE})"
                    f" / rate(pdops_pair_kv_handshake_seconds_count{{{ALL}}}{RATE})",
                    "{{src}} > {{dst}}",
                ),
                Query(f"increase(pdops_pair_kv_handshake_failures_total{{{ALL}}}{RATE})", "failed {{src}} > {{dst}}"),
            ),
        ),
        Panel(
            id="network/rdma",
            title="RDMA traffic and errors",
            bad="Full while KV moved is small: something else fills the link. Errors: cable, port or fabric.",
            unit="Bps",
            needs="no RDMA port in the recordings",
            queries=(
                Query(f"sum by (worker) (rate(pdops_rdma_bytes_total{{{ALL}}}{RATE}))", "{{worker}}"),
                Query(f"sum by (worker) (rate(pdops_rdma_errors_total{{{ALL}}}{RATE}))", "errors {{worker}}"),
            ),
        ),
    ),
)

STORES = Row(
    "KV store",
    (
        Panel(
            id="kv-store/up",
            title="Store answers",
            bad="0: engines compute again what was stored. Restart it; its metadata is gone after a restart.",
            unit="none",
            kind="states",
            seen_in="kv-store-stopped",
            queries=(Query(f"max by (worker) (pdops_worker_up{{{STORE}}})", "{{worker}}"),),
        ),
        Panel(
            id="kv-store/used",
            title="Memory tier in use",
            bad="Full: it evicts what is still needed. Absent with the store up: no segment is mounted, it stores nothing.",
            unit="percentunit",
            seen_in="kv-store-stopped",
            queries=(Query(f"max by (worker) (pdops_kvstore_fill_ratio{{{STORE}}})", "{{worker}}"),),
            steps=((0, "green"), (0.8, "yellow"), (0.95, "red")),
            max=1.0,
        ),
        Panel(
            id="kv-store/hit-rate",
            title="Hit rate of the external tier, by role",
            bad="Fell with the store up: metadata lost, other prompts, or evictions.",
            unit="percentunit",
            queries=(
                Query(
                    f'sum by (cluster, role) (rate(pdops_prefix_cache_hit_tokens_total{{{ALL},role=~"prefill|decode",tier="external"}}{RATE}))'
                    f' / sum by (cluster, role) (rate(pdops_prefix_cache_query_tokens_total{{{ALL},role=~"prefill|decode",tier="external"}}{RATE}))',
                    "{{role}}",
                ),
            ),
            max=1.0,
        ),
        Panel(
            id="kv-store/evictions",
            title="Evictions and refused writes",
            bad="Evictions with a falling hit rate: the store is too small for the prompts.",
            unit="none",
            seen_in="kv-store-stopped",
            queries=(
                Query(f"sum by (worker) (rate(pdops_kvstore_evictions_total{{{STORE}}}{RATE}))", "evicted {{worker}}"),
                Query(
                    f"sum by (worker) (rate(pdops_kvstore_alloc_failures_total{{{STORE}}}{RATE}))", "refused {{worker}}"
                ),
            ),
        ),
        Panel(
            id="kv-store/fetch-wait",
            title="Requests whose stored KV is being fetched",
            bad="Grows: the lookup or the fetch costs more than the prefill it saves.",
            unit="none",
            queries=(
                Query(f'sum by (worker) (pdops_queue_requests{{{PREFILL},reason="deferred"}})', "prefill {{worker}}"),
                Query(f'sum by (worker) (pdops_queue_requests{{{DECODE},reason="deferred"}})', "decode {{worker}}"),
            ),
        ),
    ),
)

DASHBOARD = Dashboard(
    "kv-transfer",
    "PD KV transfer",
    "Whether KV moves, how fast, between whom, and what the store gives.",
    (LINKS, FAILURES, STORES),
)
