"""Decode takes every request that prefill takes, and nobody lets longer ones in."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.options import LENGTH, named, number
from pdops.diagnose.preflight import NO_ALERT, Seen, agrees, amount, engines, must, not_applicable, unread, warn
from pdops.model.cluster import Role

META = CheckMeta(
    id="pair/lengths",
    title="Length limits and KV pools fit from router to prefill to decode",
    causes=("config-asymmetry",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

CAUSE = "config-asymmetry"
POOL = "kv_cache_size_tokens"


def check(ctx: Context) -> Iterator[Finding]:
    """Compare maximum lengths and the size of KV pools, all in tokens."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable(CAUSE, "the inventory has no prefill and decode pair")
        return
    limits = {w.id: number(LENGTH.aliases, ctx.view.facts.get(w.id, {})) for w in workers}
    senders = {w.id: n for w in ctx.cluster.of_role(Role.PREFILL) if (n := limits[w.id]) is not None}
    readers = {w.id: n for w in ctx.cluster.of_role(Role.DECODE) if (n := limits[w.id]) is not None}
    lost = [name for name, limit in limits.items() if limit is None]
    seen = [Seen(name, LENGTH.name, limit, "tokens") for name, limit in (*senders.items(), *readers.items())]
    if lost:
        yield unread(CAUSE, lost, LENGTH.name, f"{LENGTH.name} was not read")
    if senders and readers:
        if min(readers.values()) < max(senders.values()):
            fix = f"raise --max-model-len on decode to {max(senders.values())}, or lower it on prefill"
            yield must(CAUSE, seen, "at least as long on decode as on prefill", fix)
        elif not lost:
            text = f"prefill takes {max(senders.values())} tokens, decode {min(readers.values())} or more"
            yield agrees(CAUSE, text)
        yield from _router(ctx, min(*senders.values(), *readers.values()))
    for worker in workers:
        yield from _pool(ctx, worker.id, max(senders.values(), default=limits[worker.id] or 0))


def _router(ctx: Context, least: int) -> Iterator[Finding]:
    """Judge the router's cap; a request that only the engine refuses has already cost a prefill or counts as its failure."""
    for router in ctx.cluster.of_role(Role.ROUTER):
        cap = number(LENGTH.aliases, ctx.view.facts.get(router.id, {}))
        if cap is None:
            yield unread(CAUSE, router.id, LENGTH.name, "the router's own limit was not read")
        elif cap > least:
            seen = [Seen(router.id, LENGTH.name, cap, "tokens"), Seen(None, LENGTH.name, least, "tokens")]
            fix = f"cap requests at the router to {least} tokens, so that it refuses what no engine takes"
            yield warn(CAUSE, seen, f"at most {least}, the least of the engines", fix)
        else:
            yield agrees(CAUSE, f"{router.id} lets {cap} tokens in, the engines take {least}")


def _pool(ctx: Context, worker: str, longest: int) -> Iterator[Finding]:
    """Judge whether one longest request fits a KV pool at all; one that does not can never be admitted."""
    size = amount(ctx, worker, POOL)
    if size is None:
        blocks = amount(ctx, worker, "num_gpu_blocks", "num_gpu_blocks_override")
        block = number(named("block_size").aliases, ctx.view.facts.get(worker, {}))
        size = None if blocks is None or block is None else blocks * block
    if size is None:
        yield unread(
            CAUSE, worker, POOL, "the size of the KV pool was not read", "read the engine's metrics page after start"
        )
    elif longest and size < longest:
        seen = [Seen(worker, POOL, size, "tokens"), Seen(None, LENGTH.name, longest, "tokens")]
        fix = "give the KV pool more memory or more blocks, or lower --max-model-len"
        yield must(CAUSE, seen, f"at least {longest}", fix)
    elif longest:
        yield agrees(CAUSE, f"the KV pool of {worker} holds {size:.0f} tokens, the longest request has {longest}")
