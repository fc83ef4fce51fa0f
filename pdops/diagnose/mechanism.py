"""How each latency cause makes clients wait: the stages of TTFT it lengthens, and whether token gaps grow too."""

from __future__ import annotations

from dataclasses import dataclass

_PREFILL = frozenset({"prefill_queue", "prefill_compute"})
_WAIT = frozenset({"kv_fetch_wait", "decode_wait", "handoff"})
_MOVE = frozenset({"kv_transfer", "kv_fetch_wait", "handoff"})


@dataclass(frozen=True, slots=True)
class Mechanism:
    """The stages (names of `TtftStage`) through which a cause works, and whether it lengthens ITL."""

    stages: frozenset[str]
    itl: bool = False


MECHANISMS: dict[str, Mechanism] = {
    "prefill-undersized": Mechanism(_PREFILL),
    "traffic-burst": Mechanism(_PREFILL | _WAIT, itl=True),
    "workload-shift": Mechanism(_PREFILL | _MOVE | _WAIT, itl=True),
    "prefill-slow-worker": Mechanism(_PREFILL),
    "chunked-prefill-misconfig": Mechanism(_PREFILL, itl=True),
    "prefill-kv-oom": Mechanism(_PREFILL),
    "prefix-cache-collapse": Mechanism(_PREFILL),
    "router-index-loss": Mechanism(_PREFILL),
    "backpressure-to-prefill": Mechanism(_PREFILL | _WAIT, itl=True),
    "kv-strand-prefill": Mechanism(_PREFILL | _WAIT),
    "kvstore-slow-or-missed-prefetch": Mechanism(_PREFILL | _MOVE),
    "transport-slow": Mechanism(_MOVE | _WAIT),
    "transport-fallback-slow": Mechanism(_MOVE | _WAIT),
    "network-degraded": Mechanism(_MOVE | _WAIT, itl=True),
    "network-saturated": Mechanism(_MOVE | _WAIT, itl=True),
    "cross-zone": Mechanism(_MOVE | _WAIT),
    "decode-undersized": Mechanism(_WAIT | _MOVE, itl=True),
    "decode-slow-worker": Mechanism(_WAIT | _MOVE, itl=True),
    "decode-kv-exhaustion": Mechanism(_WAIT | _MOVE, itl=True),
    "batch-cap-too-low": Mechanism(_WAIT),
    "output-inflation": Mechanism(_WAIT | _MOVE, itl=True),
    "mixed-length-jitter": Mechanism(_WAIT, itl=True),
    "gpu-throttle": Mechanism(_PREFILL | _WAIT, itl=True),
    "router-imbalance": Mechanism(_PREFILL | _WAIT, itl=True),
    "prefix-hotspot": Mechanism(_PREFILL | _WAIT, itl=True),
}
"""Causes not named here are not asked how much of a latency they explain: they show as errors, wrong answers, or absence."""
