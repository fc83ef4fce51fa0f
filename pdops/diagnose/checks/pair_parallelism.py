"""The way the model is cut up on prefill fits the way it is cut up on decode."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.options import TENSOR_PARALLEL, Option, named, number
from pdops.diagnose.pairing import HandOff, hand_off, heads, is_latent
from pdops.diagnose.preflight import (
    NO_ALERT,
    Seen,
    agrees,
    engines,
    must,
    not_applicable,
    same,
    unread,
    warn,
    was_configured,
)
from pdops.model.cluster import Role

META = CheckMeta(
    id="pair/parallelism",
    title="Tensor, pipeline and context parallelism of prefill and decode fit each other",
    causes=("config-asymmetry",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

Sizes = dict[str, int | None]


def check(ctx: Context) -> Iterator[Finding]:
    """Judge whether each decode rank finds the KV heads, layers and positions it needs on prefill's ranks."""
    if not engines(ctx):
        yield not_applicable("config-asymmetry", "the inventory has no prefill and decode pair")
        return
    yield from _tensor(ctx)
    yield from _pipeline(ctx)
    yield from _context(ctx)


def _sizes(ctx: Context, option: Option) -> Sizes:
    """Return the size by worker; 1 for one that was started without the option, as in vLLM and SGLang."""
    found: Sizes = {}
    for worker in engines(ctx):
        size = number(option.aliases, ctx.view.facts.get(worker.id, {}))
        found[worker.id] = 1 if size is None and was_configured(ctx, worker.id) else size
    return found


def _known(ctx: Context, sizes: Sizes, role: Role) -> dict[str, int]:
    return {w.id: size for w in ctx.cluster.of_role(role) if (size := sizes[w.id])}


def _tensor(ctx: Context) -> Iterator[Finding]:
    """Judge tensor parallelism.

    Source: transfer topology of vLLM 0.32 (one size divides the other; with more prefill than decode ranks no KV head may
    be replicated on prefill), and public incidents with other engines (2 KV heads on 4 ranks; unlike sizes under load).
    """
    option = TENSOR_PARALLEL
    sizes = _sizes(ctx, option)
    left, right = _known(ctx, sizes, Role.PREFILL), _known(ctx, sizes, Role.DECODE)
    seen = [Seen(name, option.name, size) for name, size in sizes.items() if size]
    apart = {(p, d) for p in left.values() for d in right.values() if p != d}
    lost = [name for name, size in sizes.items() if not size]
    kv_heads, latent = heads(ctx), any(is_latent(ctx, w.id) for w in engines(ctx))
    vllm = all(h is not HandOff.OTHER for w in engines(ctx) if (h := hand_off(ctx, w.id)) is not None)
    if any(max(pair) % min(pair) for pair in apart):
        yield must(option.cause, seen, "one a multiple of the other", "use sizes of which one divides the other")
    elif not latent and kv_heads is not None and any(p > d and p > kv_heads for p, d in apart):
        yield must(
            option.cause,
            [*seen, Seen(None, "num_key_value_heads", kv_heads)],
            "prefill's size at most decode's, or at most the KV heads",
            f"use at most {kv_heads} ranks on prefill, or as many as on decode: beyond that a KV head has several owners",
        )
    elif not latent and kv_heads is not None and any(max(pair) > kv_heads for pair in apart):
        yield warn(
            option.cause,
            [*seen, Seen(None, "num_key_value_heads", kv_heads)],
            f"the same, or both at most {kv_heads} KV heads",
            f"use the same size on both sides or at most {kv_heads} ranks, and prove it with a canary of each pair",
        )
    elif apart and not vllm:
        yield warn(
            option.cause,
            seen,
            "the same on prefill and decode",
            "use the same size on both sides: outside vLLM's NIXL connector unlike sizes have failed under load",
        )
    elif apart and kv_heads is None and not latent:
        why = f"{option.name} differs, and whether that works depends on the KV heads, which were not read"
        yield unread(option.cause, None, "num_key_value_heads", why, "read the model's config.json")
    elif left and right and not lost:
        text = " and ".join(str(n) for n in sorted({*left.values(), *right.values()}))
        yield agrees(option.cause, f"{option.name} is {text}, which fit")
    if lost:
        yield unread(option.cause, lost, option.name, f"{option.name} was not read")


def _pipeline(ctx: Context) -> Iterator[Finding]:
    """Judge pipeline parallelism; vLLM's NIXL connector allows it on prefill alone when prefill pushes."""
    option = named("pipeline_parallel_size")
    sizes = _sizes(ctx, option)
    split = {name: size for name, size in _known(ctx, sizes, Role.DECODE).items() if size > 1}
    ways = {hand_off(ctx, w.id) for w in engines(ctx)}
    if split and any(way is not None and way.nixl for way in ways):
        yield must(
            option.cause,
            [Seen(name, option.name, size) for name, size in split.items()],
            "1 on decode",
            "run decode without pipeline parallelism: the NIXL connector refuses it there",
        )
    elif ways == {HandOff.NIXL_PUSH} and all(sizes.values()):
        yield agrees(option.cause, f"{option.name} is 1 on decode, and prefill pushes")
    else:
        yield from same(ctx, option, "use the same pipeline parallelism on both sides", default="1")


def _context(ctx: Context) -> Iterator[Finding]:
    option = named("decode_context_parallel_size")
    sizes = _sizes(ctx, option)
    left, right = _known(ctx, sizes, Role.PREFILL), _known(ctx, sizes, Role.DECODE)
    seen = [Seen(name, option.name, size) for name, size in sizes.items() if size]
    lost = [name for name, size in sizes.items() if not size]
    if any(max(p, d) % min(p, d) for p in left.values() for d in right.values()):
        yield must(option.cause, seen, "one a multiple of the other", "use sizes of which one divides the other")
    elif lost:
        yield unread(option.cause, lost, option.name, f"{option.name} was not read")
    else:
        yield agrees(
            option.cause, f"{option.name} is {' and '.join(str(n) for n in sorted({*left.values(), *right.values()}))}"
        )
