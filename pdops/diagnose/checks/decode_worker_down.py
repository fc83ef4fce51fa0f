"""Decode workers are missing."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.presence import workers_down
from pdops.model.cluster import Role
from pdops.model.report import DoNot

META = CheckMeta(
    id="decode/worker-down",
    title="Decode workers do not answer",
    causes=("decode-down",),
    needs=("scrape_age_seconds", "request_failure"),
    tier=Tier.PRESENCE,
    explains=(
        "telemetry-gap",
        "kv-strand-prefill",
        "kv-lease-expiry",
        "backpressure-to-prefill",
        "transport-error",
        "network-partition",
        "decode-undersized",
        "decode-kv-exhaustion",
        "cold-start",
        "router-imbalance",
        "router-fault",
        "ratio-wrong",
        "traffic-burst",
        "prefill-undersized",
        "timeout-too-short",
        "no-timeout-hang",
        "decode-slow-worker",
    ),
    alert="PDDecodeWorkerDown",
    panel="decode/workers-up",
)

_DO_NOT = (
    DoNot(
        action="scale-out-prefill", why="prefill holds KV that no decode worker pulls; more prefill strands more of it"
    ),
)


def check(ctx: Context) -> Iterator[Finding]:
    """Look for decode workers that do not answer, or did not a moment ago."""
    yield from workers_down(ctx, Role.DECODE, "decode-down", _DO_NOT)
