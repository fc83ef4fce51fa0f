"""A buffer between prefill and decode holds the longest prompt that is let in."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.options import LENGTH, number
from pdops.diagnose.pairing import connectors, kv_bytes_per_token
from pdops.diagnose.preflight import NO_ALERT, Seen, agrees, amount, engines, must, not_applicable, unread, warn
from pdops.model.cluster import Role

META = CheckMeta(
    id="pair/staging-buffer",
    title="Transfer buffers hold the KV of the longest prompt admitted",
    causes=("staging-buffer-exhausted",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

CAUSE = "staging-buffer-exhausted"
TOKENS = ("max_tokens_in_buffer",)
"""TensorRT-LLM's transfer buffer, in tokens."""
BYTES = ("pd_buffer_size", "lmcache_pd_buffer_size", "LMCACHE_PD_BUFFER_SIZE", "nixl_buffer_size")
"""LMCache's staging buffer, in bytes."""
BUFFERED = ("lmcache", "trtllm", "tensorrt")
"""Parts of the names of connectors and engines that stage KV in a buffer of their own."""
AT_ONCE = 2
"""Prompts that must fit to read one while the next is written; fewer serialise transfers."""


def check(ctx: Context) -> Iterator[Finding]:
    """Compare each buffer with the KV of the longest prompt that router and engine admit."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable(CAUSE, "the inventory has no prefill and decode pair")
        return
    sizes = {w.id: (amount(ctx, w.id, *TOKENS), amount(ctx, w.id, *BYTES)) for w in workers}
    ours = [w.id for w in workers if sizes[w.id] != (None, None)]
    names = {w.id: (*(connectors(ctx, w.id) or ()), w.engine or "") for w in workers}
    stages = [i for i, told in names.items() if any(part in name.casefold() for name in told for part in BUFFERED)]
    blind = [i for i in stages if i not in ours]
    if not ours and not blind:
        unknown = [w.id for w in workers if connectors(ctx, w.id) is None]
        if unknown:
            yield unread(CAUSE, unknown, "kv_connector", "whether KV goes through a staging buffer was not read")
        else:
            yield not_applicable(CAUSE, "KV moves straight between the KV pools, without a buffer of its own")
        return
    if blind:
        yield unread(CAUSE, blind, BYTES[0], "the size of the staging buffer was not read")
    for worker in ours:
        yield _judge(ctx, worker, *sizes[worker])


def _judge(ctx: Context, worker: str, tokens: float | None, size: float | None) -> Finding:
    longest = _longest(ctx, worker)
    if longest is None:
        return unread(CAUSE, worker, LENGTH.name, "the longest prompt admitted is not known")
    name = TOKENS[0] if tokens is not None else BYTES[0]
    each = kv_bytes_per_token(ctx, worker)
    if tokens is None:
        if each is None:
            return unread(
                CAUSE,
                worker,
                "kv_bytes_per_token",
                "bytes of KV per token are not known",
                "give model.kv_bytes_per_token in the inventory",
            )
        tokens = (size or 0.0) / each
    seen = [
        Seen(worker, name, tokens if size is None else size, "tokens" if size is None else "bytes"),
        Seen(worker, LENGTH.name, longest, "tokens"),
    ]
    need = longest if size is None else longest * (each or 0.0)
    if tokens < longest:
        fix = f"raise {name} to at least {need:.0f}, or cap prompts at the router to {tokens:.0f} tokens"
        return must(CAUSE, seen, f"at least {need:.0f}", fix)
    if tokens < AT_ONCE * longest:
        fix = f"raise {name} to {AT_ONCE * need:.0f} or more, so that one prompt is written while another is read"
        return warn(CAUSE, seen, f"at least {AT_ONCE * need:.0f}", fix)
    return agrees(CAUSE, f"{name} on {worker} holds {tokens:.0f} tokens, the longest prompt has {longest}")


def _longest(ctx: Context, worker: str) -> int | None:
    own = number(LENGTH.aliases, ctx.view.facts.get(worker, {}))
    routers = ctx.cluster.of_role(Role.ROUTER)
    caps = [n for r in routers if (n := number(LENGTH.aliases, ctx.view.facts.get(r.id, {})))]
    known = [n for n in (own, max(caps) if routers and len(caps) == len(routers) else None) if n is not None]
    return min(known, default=None)
