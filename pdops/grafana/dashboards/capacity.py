"""Whether the cluster has the right size, and its pools the right ratio."""

from __future__ import annotations

from pdops.grafana.dashboards.panel import ALL, DECODE, PREFILL, RATE, Dashboard, Panel, Query, Row

_GPU = "no GPU in the recordings"
_OF_GPU = 'role=~".*"'

BALANCE = Row(
    "Balance",
    (
        Panel(
            id="capacity/pool-balance",
            title="How busy each pool is",
            bad="One near 1 and the other far from it: move workers. Prefill: time computing over time there is. Decode: KV in use.",
            unit="percentunit",
            queries=(
                Query(
                    f"sum by (cluster) (rate(pdops_prefill_seconds_sum{{{PREFILL}}}{RATE}))"
                    f" / count by (cluster) (pdops_worker_up{{{PREFILL}}})",
                    "prefill, busy workers",
                ),
                Query(f"avg by (cluster) (pdops_kv_cache_usage{{{DECODE}}})", "decode, KV in use"),
            ),
        ),
        Panel(
            id="capacity/replicas",
            title="Workers by pool",
            bad="Moves without load moving: an autoscaler follows the wrong signal.",
            unit="none",
            queries=(Query(f"sum by (pool) (pdops_worker_up{{{ALL}}})", "{{pool}}"),),
        ),
        Panel(
            id="capacity/demand",
            title="Demand and completion",
            bad="Prefill finishes more than decode for minutes: decode is behind, and prefill will fill up with its KV.",
            unit="reqps",
            queries=(
                Query(f"sum by (cluster) (rate(pdops_request_success_total{{{PREFILL}}}{RATE}))", "prefill finished"),
                Query(f"sum by (cluster) (rate(pdops_request_success_total{{{DECODE}}}{RATE}))", "decode finished"),
            ),
        ),
        Panel(
            id="capacity/queue-wait",
            title="Wait that the queues mean (queue over completions)",
            bad="Prefill's part alone above the TTFT promise: no request that comes now can be in time.",
            unit="s",
            queries=(
                Query(
                    f"sum by (cluster) (pdops_queue_depth{{{PREFILL}}}) / sum by (cluster) (rate(pdops_request_success_total{{{PREFILL}}}{RATE}))",
                    "prefill",
                ),
                Query(
                    f"sum by (cluster) (pdops_queue_depth{{{DECODE}}}) / sum by (cluster) (rate(pdops_request_success_total{{{DECODE}}}{RATE}))",
                    "decode",
                ),
            ),
        ),
        Panel(
            id="capacity/goodput-per-worker",
            title="Goodput per worker",
            bad="Falls as workers are added: something else is the limit.",
            unit="reqps",
            queries=(
                Query(
                    f'sum by (cluster) (rate(pdops_slo_good_events_total{{{ALL},slo="ttft",bound="low"}}{RATE}))'
                    f' / count by (cluster) (pdops_worker_up{{{ALL},role=~"prefill|decode"}})',
                    "surely good requests/s",
                ),
            ),
        ),
        Panel(
            id="capacity/kv-headroom",
            title="KV headroom of decode",
            bad="Below 0.3 at the peak there is no room for a burst.",
            unit="percentunit",
            queries=(Query(f"1 - max by (worker) (pdops_kv_cache_usage{{{DECODE}}})", "{{worker}}"),),
            steps=((0, "red"), (0.1, "orange"), (0.3, "green")),
            max=1.0,
        ),
    ),
)

HARDWARE = Row(
    "GPUs",
    (
        Panel(
            id="capacity/gpu-busy",
            title="GPU busy",
            bad="Says that a kernel ran, not how much work it did: decode shows nearly 1 at batch 1.",
            unit="percentunit",
            needs=_GPU,
            queries=(Query(f"max by (role, gpu) (pdops_gpu_busy_ratio{{{_OF_GPU}}})", "{{role}} {{gpu}}"),),
            max=1.0,
        ),
        Panel(
            id="capacity/gpu-memory",
            title="GPU memory in use",
            bad="Near full outside the KV pool: the next long prompt may end the engine.",
            unit="percentunit",
            needs=_GPU,
            queries=(
                Query(
                    f"max by (role, gpu) (pdops_gpu_memory_used_bytes{{{_OF_GPU}}} / pdops_gpu_memory_total_bytes{{{_OF_GPU}}})",
                    "{{role}} {{gpu}}",
                ),
            ),
            max=1.0,
        ),
        Panel(
            id="capacity/gpu-power",
            title="GPU power",
            bad="At the limit with falling clocks: power cap.",
            unit="watt",
            needs=_GPU,
            queries=(Query(f"max by (role, gpu) (pdops_gpu_power_watts{{{_OF_GPU}}})", "{{role}} {{gpu}}"),),
        ),
        Panel(
            id="capacity/gpu-clock-events",
            title="Reasons that hold GPU clocks down",
            bad="hardware-thermal or power-brake on one GPU: that is the slow worker; drain it.",
            unit="none",
            kind="states",
            needs=_GPU,
            queries=(
                Query(
                    f'max by (gpu, reason) (pdops_gpu_clock_event{{{_OF_GPU},reason!="gpu-idle"}})',
                    "{{gpu}} {{reason}}",
                ),
            ),
        ),
    ),
)

DASHBOARD = Dashboard(
    "capacity", "PD capacity", "Whether pools fit the load and each other, and what hardware says.", (BALANCE, HARDWARE)
)
