"""Which parameters each kind of fault reads; any other name would change nothing, so it is refused."""

from __future__ import annotations

from collections.abc import Mapping

EVERY = ("duration_s",)
"""What every kind takes."""

BY_KIND: Mapping[str, tuple[str, ...]] = {
    "prefill-speed": ("factor", "period_s"),
    "decode-speed": ("factor", "period_s"),
    "rank-imbalance": ("factor", "period_s"),
    "kv-blocks": ("factor",),
    "max-num-seqs": ("value", "share"),
    "max-num-batched-tokens": ("value",),
    "lease-short": ("lease_s", "renewed"),
    "cache-wipe": ("share", "every_s"),
    "cache-disable": (),
    "kv-leak": ("blocks_per_s",),
    "admission-reject": ("ratio",),
    "step-stall": ("stall_s", "every_s"),
    "worker-kill": ("restart_after_s",),
    "prefill-workers-lost": ("count", "share"),
    "worker-freeze": (),
    "scale-out": ("role", "count"),
    "ratio": ("to", "move", "restart_s"),
    "scaler-swing": ("role", "share", "period_s"),
    "drain": (),
    "rolling-deploy": ("revision", "restart_s", "every_s", "share", "warm_s"),
    "link-rate": ("factor", "pairs"),
    "link-latency": ("add_s",),
    "link-loss": ("ratio",),
    "link-cut": (),
    "nic-background": ("share",),
    "handshake-fail": (),
    "transport-tcp": ("factor", "descriptors"),
    "descriptor-jump": ("factor",),
    "pull-limit": ("tokens",),
    "zone-placement": ("rate_factor", "rtt_s"),
    "idle-drop": ("idle_s", "stall_s"),
    "output-scale": ("factor",),
    "prompt-scale": ("factor",),
    "rate-scale": ("factor",),
    "rate-burst": ("factor",),
    "prefix-mix": ("factor",),
    "prompt-mix": ("share", "scale"),
    "prefix-hotspot": ("share",),
    "abort-storm": ("patience_s", "share"),
    "store-down": (),
    "store-slow": ("factor",),
    "store-small": ("factor",),
    "store-hollow": ("share", "wait_s"),
    "router-policy": ("name",),
    "router-zone-blind": ("rate_factor", "rtt_s"),
    "router-stale": ("age_s",),
    "router-no-backpressure": (),
    "health-eject": ("period_s",),
    "decode-only": ("share", "mode"),
    "hop-delay": ("ratio", "wait_s"),
    "telemetry-drop": ("families", "share"),
    "telemetry-freeze": (),
    "counter-reset": (),
    "clock-skew": ("skew_s",),
    "scrape-gap": (),
}


def taken(kind: str) -> tuple[str, ...]:
    """Return the names of the parameters that a kind of fault takes."""
    return (*BY_KIND[kind], *EVERY)
