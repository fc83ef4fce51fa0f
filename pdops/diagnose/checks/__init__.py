"""Every check, in order of thought. One file a check, its page beside it."""

from __future__ import annotations

from pdops.diagnose.checks import (
    decode_itl_high,
    decode_kv_exhaustion,
    decode_kv_leak,
    decode_rank_imbalance,
    decode_worker_down,
    host_memory_growth,
    pair_canary_mismatch,
    pair_config_mismatch,
    pair_never_connected,
    prefill_queue_backlog,
    prefill_worker_down,
    router_silent_local_prefill,
    startup_cold_start,
    startup_restart_loop,
    telemetry_corrupt_sum,
    telemetry_log_line,
    telemetry_names_escaped,
    telemetry_no_data,
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
    transfer_read_after_expiry,
    pair_canary_mismatch,
    startup_restart_loop,
    prefill_worker_down,
    decode_worker_down,
    startup_cold_start,
    pair_config_mismatch,
    pair_never_connected,
    telemetry_log_line,
    router_silent_local_prefill,
    transfer_lease_expiry,
    transfer_failures,
    transfer_stalled,
    host_memory_growth,
    transfer_link_slow,
    decode_kv_leak,
    decode_rank_imbalance,
    decode_kv_exhaustion,
    decode_itl_high,
    prefill_queue_backlog,
)

CHECKS: tuple[Check, ...] = tuple(Check(module.META, module.check) for module in _MODULES)
