"""The store fills and nothing of it is ever read."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.cache import LOCAL, STORED, WORTH, shares, store_keys, store_up
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.pairing import is_vllm
from pdops.diagnose.symptoms import picture
from pdops.model.cluster import Role
from pdops.model.frame import EventKind
from pdops.model.report import DoNot, Layer, Symptom

META = CheckMeta(
    id="kvstore/written-never-read",
    title="KV goes to the store and never comes back",
    causes=("kvstore-slow-or-missed-prefetch", "hash-mismatch"),
    needs=(
        "external_cache_hits",
        "external_cache_queries",
        "kvstore_used_bytes",
        "kvstore_evictions",
        "prefix_cache_hits",
        "prefix_cache_queries",
        "ttft_seconds",
    ),
    tier=Tier.STAGE,
    explains=("prefill-undersized", "workload-shift"),
    alert="PDKvStoreNeverRead",
    panel="kv-store/hit-rate",
)

NEVER = 0.01
"""Share of the tokens looked up below which the store gives nothing back; a shared store that works finds far more."""
RECENT_S = 900.0
"""A store refills over minutes to hours, so after a restart it has nothing to give yet."""
GREW = 1.05
"""Growth of what is stored that is more than the coming and going of objects."""


def check(ctx: Context) -> Iterator[Finding]:
    """Join lookups that find nothing with a store that is written to, while first tokens are slow."""
    found = shares(ctx, STORED)
    never = [s for s in found if s.now.below(NEVER) and (s.before is None or s.before < NEVER)]
    if not never:
        if any(s.held for s in found):
            yield clear("kvstore-slow-or-missed-prefetch", "what is stored is read again")
        return
    written = _written(ctx)
    if not written or not picture(ctx).ttft_high or store_up(ctx) is False or _restarted(ctx):
        return
    hits = [ctx.saw(s.signal, s.unit, s.now, None, basis="physics", ratio=MODERATE, group="hits") for s in never]
    scopes = tuple(ctx.scope(s.unit) for s in never)
    against = _nothing_repeats(ctx)
    yield Finding(
        status=Status.FIRED,
        cause="kvstore-slow-or-missed-prefetch",
        layer=Layer.CONFIG,
        scopes=scopes,
        for_=(*hits, *written),
        against=against,
        symptoms=(Symptom.TTFT,),
        next=(
            "read the prefetch policy, its timeout and its least prompt length: a prefetch that may not take time is given up",
            "clear the engines' own caches, send one long prompt twice, and see whether the store is asked for it",
        ),
        runbooks=("prefix-cache-fallback",),
        do_not=(DoNot(action="scale-out-prefill", why="prefill computes what is already stored; it has to be read"),),
    )
    if any(is_vllm(w) for w in ctx.cluster.of_role(Role.PREFILL)):
        yield Finding(
            status=Status.FIRED,
            cause="hash-mismatch",
            scopes=scopes,
            for_=tuple(hits),
            against=against,
            next=("compare hash algorithm, hash seed and chunk size of all that share the store",),
            runbooks=("prefix-cache-fallback",),
        )


def _written(ctx: Context) -> tuple[Weighed, ...]:
    """Return what shows that objects come into the store: more is held, or old ones are pushed out."""
    found = []
    for key in store_keys(ctx):
        used, before = ctx.ask.level(key, "kvstore_used_bytes"), past.level(ctx, key, "kvstore_used_bytes")
        if before and used.above(GREW * before):
            found.append(
                ctx.saw("kvstore_used_bytes", key, used, before, basis="history", ratio=MODERATE, group="written")
            )
        evicted = ctx.ask.increase(key, "kvstore_evictions")
        if evicted.above(0):
            found.append(
                ctx.saw("kvstore_evictions", key, evicted, 0.0, basis="physics", ratio=MODERATE, group="written")
            )
    return tuple(found)


def _restarted(ctx: Context) -> bool:
    return any(ctx.events((EventKind.RESTART,), RECENT_S, key) for key in store_keys(ctx))


def _nothing_repeats(ctx: Context) -> tuple[Weighed, ...]:
    """Return that the engines' own caches find nothing either: then prompts may simply not repeat."""
    return tuple(
        ctx.saw(s.signal, s.unit, s.now, WORTH, basis="physics", ratio=MODERATE, group="repeats")
        for s in shares(ctx, LOCAL)
        if s.now.below(WORTH)
    )
