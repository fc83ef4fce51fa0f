"""The same tokens have the same key in a shared KV store, whoever hashes them."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.options import Value, named, read
from pdops.diagnose.pairing import connectors, is_vllm, shares_kv
from pdops.diagnose.preflight import NO_ALERT, Seen, agrees, engines, must, not_applicable, same, unread, was_configured

META = CheckMeta(
    id="pair/prefix-hash",
    title="Prefixes hash alike on all workers that share stored KV",
    causes=("hash-mismatch",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

SEED = "PYTHONHASHSEED"
_FIXED = ("sha256", "sha256_cbor")
"""Algorithms for which vLLM 0.32 takes a fixed seed when none is set; others draw one for each process."""


def check(ctx: Context) -> Iterator[Finding]:
    """Compare hash algorithm, seed and chunk size; they matter where KV is looked up by its hash, not for the hand-off."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable("hash-mismatch", "the inventory has no prefill and decode pair")
        return
    shared = shares_kv(ctx)
    if shared is False:
        yield not_applicable("hash-mismatch", "no worker uses a store, and the hand-off does not look KV up by hash")
        return
    if shared is None:
        lost = [w.id for w in workers if connectors(ctx, w.id) is None]
        yield unread("hash-mismatch", lost, "kv_connector", "whether KV is shared through a store was not read")
        return
    algorithm = named("prefix_caching_hash_algo")
    values = {w.id: read(algorithm, ctx.view.facts.get(w.id, {})) for w in workers}
    yield from same(ctx, algorithm, "set the same --prefix-caching-hash-algo on all workers", values=values)
    yield from _seed(ctx, values)
    chunk = named("chunk_size")
    if any(read(chunk, ctx.view.facts.get(w.id, {})) for w in workers):
        yield from same(ctx, chunk, "set the same chunk size on all workers that share the store")


def _seed(ctx: Context, algorithms: dict[str, Value | None]) -> Iterator[Finding]:
    option = named(SEED)
    seeds = {w.id: read(option, ctx.view.facts.get(w.id, {})) for w in engines(ctx)}
    fix = f"set {SEED}=0 in the environment of all workers that share the store"
    if any(seeds.values()):
        unset = [name for name, seed in seeds.items() if seed is None and was_configured(ctx, name)]
        yield from same(
            ctx, option, fix, values={n: Value("not set", None) if n in unset else s for n, s in seeds.items()}
        )
        return
    if not all(was_configured(ctx, w.id) for w in engines(ctx)):
        yield unread(option.cause, [w.id for w in engines(ctx)], SEED, "the environment was not read")
        return
    own = [n for n, a in algorithms.items() if a is not None and a.known not in (*_FIXED, None)]
    lmcache = [w.id for w in engines(ctx) if any("lmcache" in c.casefold() for c in connectors(ctx, w.id) or ())]
    if own or lmcache:
        # Python's own hash and fast hashes start from a random number then, so no two processes agree.
        seen = [Seen(name, SEED, "not set") for name in seeds if name in own or name in lmcache]
        yield must(option.cause, seen, "one number on all workers", fix)
    elif all(is_vllm(w) for w in engines(ctx)):
        yield agrees(
            option.cause, f"{SEED} is set on no worker, and with {_FIXED[0]} vLLM then starts from a fixed seed"
        )
    else:
        yield agrees(option.cause, f"{SEED} is set on no worker and their hash does not use it")
