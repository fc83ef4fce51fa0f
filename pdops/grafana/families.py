"""What `pdops exporter` exports, by name: the catalog's signals under their prefixes, and the families it makes itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from pdops.catalog.load import catalog
from pdops.catalog.types import SignalSpec
from pdops.model.series import Kind

CLUSTER = ("cluster", "model")
WORKER = (*CLUSTER, "role", "pool", "worker")
PAIR = (*CLUSTER, "src", "dst")
ROUTER = (*CLUSTER, "router")
GPU = ("gpu", "uuid", "name", "role", "worker")

_PREFIXES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"pdops_": WORKER, "pdops_pair_": PAIR, "pdops_client_": ROUTER, "pdops_router_view_": (*ROUTER, "worker")}
)


@dataclass(frozen=True, slots=True)
class Family:
    """One family: `name` without a suffix, its kind, and every label it carries (`le` of a histogram not counted)."""

    name: str
    kind: Kind
    labels: tuple[str, ...]

    @property
    def samples(self) -> tuple[str, ...]:
        """Names of its samples as queries write them."""
        if self.kind is Kind.HISTOGRAM:
            return tuple(self.name + suffix for suffix in ("_bucket", "_sum", "_count"))
        return (self.name + "_total",) if self.kind is Kind.COUNTER else (self.name,)


_GAUGES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "pdops_queue_requests": (*WORKER, "reason"),
        "pdops_decode_recompute_ratio": WORKER,
        "pdops_kv_cache_time_to_full_seconds": WORKER,
        "pdops_rank_kv_cache_usage": (*WORKER, "rank"),
        "pdops_kv_bytes_per_token": CLUSTER,
        "pdops_kv_transfer_bandwidth_bytes_per_second": WORKER,
        "pdops_pair_kv_transfer_bandwidth_bytes_per_second": PAIR,
        "pdops_kvstore_held_bytes": (*WORKER, "tier"),
        "pdops_kvstore_capacity_bytes": (*WORKER, "tier"),
        "pdops_kvstore_fill_ratio": WORKER,
        "pdops_slo_seconds": (*CLUSTER, "slo"),
        "pdops_slo_objective_ratio": CLUSTER,
        "pdops_slo_attainment_ratio": (*CLUSTER, "slo", "bound"),
        "pdops_verdict": (*CLUSTER, "verdict"),
        "pdops_symptom": (*CLUSTER, "symptom"),
        "pdops_finding": (*CLUSTER, "cause", "check", "layer", "scope", "fault"),
        "pdops_missing_evidence": CLUSTER,
        "pdops_probe_success": (*CLUSTER, "kind", "target"),
        "pdops_probe_timestamp_seconds": (*CLUSTER, "kind", "target"),
        "pdops_worker_up": WORKER,
        "pdops_worker_presence": (*WORKER, "presence"),
        "pdops_scrape_age_seconds": WORKER,
        "pdops_scrape_seconds": WORKER,
        "pdops_scrape_bytes": WORKER,
        "pdops_process_start_seconds": WORKER,
        "pdops_names_escaped": WORKER,
        "pdops_unknown_series": WORKER,
        "pdops_malformed_lines": WORKER,
        "pdops_preflight": (*CLUSTER, "check", "status"),
        "pdops_exporter_frame_seconds": CLUSTER,
        "pdops_exporter_info": ("version",),
        "pdops_exporter_collect_seconds": (),
        "pdops_gpu_absent": ("reason",),
        "pdops_gpu_clock_event": (*GPU, "reason"),
        "pdops_gpu_busy_ratio": GPU,
        "pdops_gpu_memory_busy_ratio": GPU,
        "pdops_gpu_memory_used_bytes": GPU,
        "pdops_gpu_memory_total_bytes": GPU,
        "pdops_gpu_power_watts": GPU,
        "pdops_gpu_power_limit_watts": GPU,
        "pdops_gpu_temperature_celsius": GPU,
        "pdops_gpu_sm_clock_hertz": GPU,
    }
)
_RUNBOOK_GAUGES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "pdops_runbook_journal_up": (),
        "pdops_runbook_current_runs": ("cluster", "state"),
        "pdops_runbook_frozen": ("cluster",),
        "pdops_runbook_telling_up": ("sink",),
    }
)
_RUNBOOK_COUNTERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "pdops_runbook_runs": ("cluster", "runbook", "outcome"),
        "pdops_runbook_steps": ("cluster", "runbook", "action", "outcome"),
        "pdops_runbook_told": ("sink",),
        "pdops_runbook_telling_failures": ("sink",),
        "pdops_runbook_telling_left_out": ("sink",),
    }
)
_RUNBOOK_HISTOGRAMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"pdops_runbook_run_seconds": ("cluster", "runbook")}
)
_COUNTERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "pdops_prefix_cache_query_tokens": (*WORKER, "tier"),
        "pdops_prefix_cache_hit_tokens": (*WORKER, "tier"),
        "pdops_kv_generated_bytes": WORKER,
        "pdops_kvstore_hits": (*WORKER, "tier"),
        "pdops_slo_events": (*CLUSTER, "slo", "source"),
        "pdops_slo_good_events": (*CLUSTER, "slo", "source", "bound"),
        "pdops_worker_restarts": WORKER,
        "pdops_exporter_frames": CLUSTER,
        "pdops_exporter_subject_errors": ("subject",),
    }
)
_SAID_BETTER = frozenset(
    {
        "queue_depth_capacity",
        "queue_depth_deferred",
        "decode_prealloc_queue_depth",
        "transfer_queue_depth",
        "kv_fetch_done_waiting",
        "prefix_cache_queries",
        "prefix_cache_hits",
        "external_cache_queries",
        "external_cache_hits",
        "kvstore_memory_hits",
        "kvstore_disk_hits",
    }
)
"""A worker's own signals that one family with a label carries instead."""


@lru_cache(maxsize=1)
def families() -> Mapping[str, Family]:
    """Return every family of the exporter by its name."""
    made = [Family(name, Kind.GAUGE, labels) for name, labels in (*_GAUGES.items(), *_RUNBOOK_GAUGES.items())]
    made += [Family(name, Kind.COUNTER, labels) for name, labels in (*_COUNTERS.items(), *_RUNBOOK_COUNTERS.items())]
    made += [Family(name, Kind.HISTOGRAM, labels) for name, labels in _RUNBOOK_HISTOGRAMS.items()]
    taken = {family.name for family in made}
    made += [family for family in _signals() if family.name not in taken]
    return MappingProxyType({family.name: family for family in made})


@lru_cache(maxsize=1)
def exported() -> Mapping[str, Family]:
    """Return the family of every sample name that a query may ask the exporter's pages for."""
    return MappingProxyType({sample: family for family in families().values() for sample in family.samples})


def _signals() -> Iterator[Family]:
    for name, spec in catalog().signals.items():
        for prefix in sorted(_told_as(spec)):
            if prefix == "pdops_" and name in _SAID_BETTER:
                continue
            shown = name.removeprefix("client_") if prefix == "pdops_client_" else name
            yield Family(prefix + shown, spec.kind, _PREFIXES[prefix])


def _told_as(spec: SignalSpec) -> set[str]:
    """Return under which prefixes some engine gives a signal."""
    found = set()
    for source in (s for sources in spec.sources.values() for s in sources if s.metric is not None):
        key = source.key
        if key.pair is not None:
            found.add("pdops_pair_")
        elif key.scope == "client":
            found.add("pdops_client_")
        elif key.scope == "router" or key.worker is not None:
            found.add("pdops_router_view_")
        else:
            found.add("pdops_")
    return found
