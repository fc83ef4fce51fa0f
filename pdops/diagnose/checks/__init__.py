"""Every check, in order of thought. One file a check, its page beside it."""

from __future__ import annotations

from types import ModuleType

from pdops.diagnose.checks import (
    capacity_autoscaler,
    capacity_ratio,
    client_abort_storm,
    client_output_inflation,
    decode_itl_high,
    decode_kv_exhaustion,
    decode_kv_leak,
    decode_rank_imbalance,
    decode_worker_down,
    host_memory_growth,
    kvstore_down,
    kvstore_full,
    kvstore_metadata_lost,
    kvstore_prefix_collapse,
    kvstore_slow_fetch,
    network_cross_zone,
    network_saturated,
    pair_canary_mismatch,
    pair_config_mismatch,
    pair_never_connected,
    prefill_queue_backlog,
    prefill_worker_down,
    router_excludes_healthy,
    router_imbalance,
    router_only,
    router_silent_local_prefill,
    router_stale_data,
    startup_cold_start,
    startup_restart_cascade,
    startup_restart_loop,
    telemetry_corrupt_sum,
    telemetry_log_line,
    telemetry_names_escaped,
    telemetry_no_data,
    telemetry_ttft_unsplit,
    transfer_failures,
    transfer_lease_expiry,
    transfer_link_slow,
    transfer_read_after_expiry,
    transfer_stalled,
)
from pdops.diagnose.finding import Check

_MODULES = (
    telemetry_no_data,
    telemetry_names_escaped,
    telemetry_corrupt_sum,
    telemetry_ttft_unsplit,
    transfer_read_after_expiry,
    pair_canary_mismatch,
    startup_restart_loop,
    startup_restart_cascade,
    prefill_worker_down,
    decode_worker_down,
    kvstore_down,
    startup_cold_start,
    pair_config_mismatch,
    pair_never_connected,
    telemetry_log_line,
    router_silent_local_prefill,
    transfer_lease_expiry,
    transfer_failures,
    transfer_stalled,
    router_stale_data,
    router_excludes_healthy,
    kvstore_metadata_lost,
    kvstore_prefix_collapse,
    network_cross_zone,
    network_saturated,
    host_memory_growth,
    transfer_link_slow,
    decode_kv_leak,
    decode_rank_imbalance,
    decode_kv_exhaustion,
    decode_itl_high,
    prefill_queue_backlog,
    kvstore_full,
    kvstore_slow_fetch,
    router_imbalance,
    router_only,
    client_output_inflation,
    client_abort_storm,
    capacity_ratio,
    capacity_autoscaler,
)

_PREFLIGHT_MODULES: tuple[ModuleType, ...] = ()

CHECKS: tuple[Check, ...] = tuple(Check(module.META, module.check) for module in _MODULES)
"""What a diagnosis runs."""
PREFLIGHT: tuple[Check, ...] = tuple(Check(module.META, module.check) for module in _PREFLIGHT_MODULES)
"""What `pdops preflight` runs."""
ALL: tuple[Check, ...] = CHECKS + PREFLIGHT
"""Everything that has a page."""
