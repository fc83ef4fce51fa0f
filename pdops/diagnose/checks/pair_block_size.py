"""KV is cut into blocks of the same size."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.options import named, number
from pdops.diagnose.pairing import HandOff, chosen, hand_off, is_vllm
from pdops.diagnose.preflight import NO_ALERT, engines, fact, must, not_applicable, same, warn
from pdops.model.cluster import Role

META = CheckMeta(
    id="pair/block-size",
    title="Block or page size is the same on prefill and decode",
    causes=("config-asymmetry",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

PHYSICAL = "effective_attention_block_size"
FIX = "set the same --block-size (SGLang: --page-size) on both sides; no handshake hash covers it"


def check(ctx: Context) -> Iterator[Finding]:
    """Compare the logical block size, and the physical one of hybrid models, which also depends on tensor parallelism."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable("config-asymmetry", "the inventory has no prefill and decode pair")
        return
    size = named("block_size")
    yield from chosen(ctx, size, FIX, warn if _may_differ(ctx) else must, size.aliases)
    if any(fact(ctx, w.id, PHYSICAL) is not None for w in workers):
        yield from same(
            ctx,
            named(PHYSICAL),
            "use the same block size and tensor parallelism on both sides, so that the physical blocks are alike",
            seen_only=True,
            say=warn if _may_differ(ctx) else must,
        )


def _may_differ(ctx: Context) -> bool:
    """Whether decode can cut what it pulls: vLLM's NIXL pull, decode's size a multiple of prefill's, no host buffer.

    Source: handshake validation of vLLM 0.32, which refuses every other combination.
    """
    sizes = {
        role: {number(named("block_size").aliases, ctx.view.facts.get(w.id, {})) for w in ctx.cluster.of_role(role)}
        for role in (Role.PREFILL, Role.DECODE)
    }
    whole = all(p and d and d % p == 0 for p in sizes[Role.PREFILL] for d in sizes[Role.DECODE])
    return whole and all(
        is_vllm(w)
        and hand_off(ctx, w.id) is HandOff.NIXL_PULL
        and fact(ctx, w.id, "kv_buffer_device") not in (None, "cpu")
        for w in engines(ctx)
    )
