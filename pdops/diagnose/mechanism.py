"""How each latency cause makes clients wait: the stages of TTFT it lengthens, and whether token gaps grow too."""

from __future__ import annotations

from dataclasses import dataclass

from pdops.model.cluster import Role

_PREFILL = frozenset({"prefill_queue", "prefill_compute"})
_WAIT = frozenset({"kv_fetch_wait", "decode_wait", "handoff"})
_MOVE = frozenset({"kv_transfer", "kv_fetch_wait", "handoff"})
_STAGES = {Role.PREFILL: _PREFILL, Role.DECODE: _WAIT | _MOVE}


@dataclass(frozen=True, slots=True)
class Mechanism:
    """The stages (names of `TtftStage`) through which a cause works, and whether it lengthens ITL.

    `there`: it works only in the stages, and on the ITL, of the role that it is placed in.
    """

    stages: frozenset[str]
    itl: bool = False
    there: bool = False

    def at(self, role: Role | None) -> Mechanism:
        """Return the mechanism of the cause where all that is accused has one role, None for both or the whole cluster."""
        if not self.there or role not in _STAGES:
            return self
        return Mechanism(self.stages & _STAGES[role], itl=self.itl and role is Role.DECODE)


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
    "gpu-throttle": Mechanism(_PREFILL | _WAIT, itl=True, there=True),
    "router-imbalance": Mechanism(_PREFILL | _WAIT, itl=True, there=True),
    "prefix-hotspot": Mechanism(_PREFILL | _WAIT, itl=True, there=True),
}
"""Causes not named here are not asked how much of a latency they explain: they show as errors, wrong answers, or absence."""
