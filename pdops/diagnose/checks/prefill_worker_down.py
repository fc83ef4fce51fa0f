"""Prefill workers are missing."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.presence import workers_down
from pdops.model.cluster import Role
from pdops.model.report import DoNot

META = CheckMeta(
    id="prefill/worker-down",
    title="Prefill workers do not answer",
    causes=("prefill-down",),
    needs=("scrape_age_seconds", "request_failure", "kv_transfer_failures"),
    tier=Tier.PRESENCE,
    explains=(
        "telemetry-gap",
        "transport-error",
        "peer-restart-stale-state",
        "silent-local-prefill",
        "network-partition",
        "prefill-undersized",
        "traffic-burst",
        "cold-start",
        "transport-slow",
        "transport-fallback-slow",
        "router-imbalance",
        "router-fault",
        "handshake-address",
        "ratio-wrong",
        "workload-shift",
        "timeout-too-short",
        "no-timeout-hang",
        "prefill-slow-worker",
    ),
    alert="PDPrefillWorkerDown",
    panel="prefill/workers-up",
)

_DO_NOT = (DoNot(action="restart-victim", why="decode fails only because its prefill peer is gone; restart prefill"),)


def check(ctx: Context) -> Iterator[Finding]:
    """Look for prefill workers that do not answer, or did not a moment ago."""
    yield from workers_down(ctx, Role.PREFILL, "prefill-down", _DO_NOT)
