"""Attention, the hybrid KV manager and speculation are alike, since they shape what is kept as KV."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.options import named
from pdops.diagnose.pairing import chosen
from pdops.diagnose.preflight import NO_ALERT, engines, not_applicable, same

META = CheckMeta(
    id="pair/attention",
    title="Attention backend, hybrid KV manager and speculation are the same on prefill and decode",
    causes=("config-asymmetry",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)


def check(ctx: Context) -> Iterator[Finding]:
    """Compare attention backend, hybrid KV manager and speculation; all three are in vLLM's handshake hash."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable("config-asymmetry", "the inventory has no prefill and decode pair")
        return
    backend = named("attention_backend")
    yield from chosen(ctx, backend, "set the same --attention-backend on both sides", names=backend.aliases)
    yield from same(
        ctx,
        named("disable_hybrid_kv_cache_manager"),
        "give --disable-hybrid-kv-cache-manager to both sides or to none",
    )
    yield from same(ctx, named("speculative_config"), "give both sides the same speculation, or none", default="none")
