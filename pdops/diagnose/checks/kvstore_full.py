"""The shared KV store is full: it refuses writes or evicts what is still needed."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.cache import LOCAL, STORED, shares, store_keys
from pdops.diagnose.context import Context
from pdops.diagnose.finding import (
    DECISIVE,
    MODERATE,
    STRONG,
    CheckMeta,
    Finding,
    Status,
    Tier,
    Weighed,
    clear,
    not_known,
)
from pdops.model.report import DoNot
from pdops.model.series import Reading, unknown

META = CheckMeta(
    id="kvstore/full",
    title="The shared KV store is full: writes are refused or needed KV is evicted",
    causes=("kvstore-full",),
    needs=("kvstore_used_bytes", "kvstore_total_bytes", "kvstore_evictions", "kvstore_alloc_failures"),
    tier=Tier.STAGE,
    explains=(
        "prefix-cache-collapse",
        "router-index-loss",
        "kvstore-slow-or-missed-prefetch",
        "prefill-undersized",
        "workload-shift",
    ),
    alert="PDKvStoreFull",
    panel="kv-store/used",
)

FULL = 0.9
"""Share of the store in use above which the next writes need evictions first."""
FASTER = 2.0
"""Evictions this many times as fast as before no longer only follow the load."""


def check(ctx: Context) -> Iterator[Finding]:
    """Join how full the store is with refused writes, evictions and the hits that go missing."""
    lost = [s for s in shares(ctx, STORED) if s.fell]
    for key in store_keys(ctx):
        fill = _fill(ctx, key)
        refused = ctx.ask.increase(key, "kvstore_alloc_failures")
        evicting = _evicts_more(ctx, key)
        full = fill.above(FULL)
        if not refused.above(0) and not (full and evicting and lost):
            yield from _not_full(ctx, key, fill, refused)
            continue
        for_: list[Weighed] = []
        if refused.above(0):
            for_.append(
                ctx.saw("kvstore_alloc_failures", key, refused, 0.0, basis="physics", ratio=STRONG, group="refused")
            )
        if full:
            for_.append(ctx.saw("kvstore_used_bytes", key, fill, FULL, basis="physics", ratio=MODERATE, group="full"))
        for_ += evicting
        for share in lost:
            for_.append(
                ctx.saw(
                    share.signal, share.unit, share.now, share.before, basis="history", ratio=MODERATE, group="hits"
                )
            )
        against: list[Weighed] = []
        if not refused.above(0):
            against += [
                ctx.saw(s.signal, s.unit, s.now, s.before, basis="history", ratio=DECISIVE, group="own")
                for s in shares(ctx, LOCAL)
                if s.fell
            ]
        if fill.below(0.5):
            against.append(ctx.saw("kvstore_used_bytes", key, fill, FULL, basis="physics", ratio=STRONG, group="full"))
        yield Finding(
            status=Status.FIRED,
            cause="kvstore-full",
            scopes=(ctx.scope(key),),
            for_=tuple(for_),
            against=tuple(against),
            next=(
                "compare what is written per hour with the store's size: how long does KV live before it goes?",
                "look for one tenant, salt or prompt template that fills the store without being read",
            ),
            runbooks=("kv-store-outage",),
            do_not=(
                DoNot(
                    action="evict-kv", why="evictions are what costs the hits; make room with memory, not by evicting"
                ),
                DoNot(action="scale-out-prefill", why="prefill computes again what the store dropped"),
            ),
        )


def _fill(ctx: Context, key: str) -> Reading:
    used, total = ctx.ask.level(key, "kvstore_used_bytes"), ctx.ask.level(key, "kvstore_total_bytes")
    if used.value is None:
        return used
    if not total.value:
        return total if total.value is None else unknown("the store has no memory")
    return Reading(used.value / total.value, n=used.n)


def _evicts_more(ctx: Context, key: str) -> list[Weighed]:
    now = ctx.ask.rate(key, "kvstore_evictions")
    before = past.rate(ctx, key, "kvstore_evictions")
    if before is None or not now.above(FASTER * before):
        return []
    return [ctx.saw("kvstore_evictions.rate", key, now, before, basis="history", ratio=MODERATE, group="evicted")]


def _not_full(ctx: Context, key: str, fill: Reading, refused: Reading) -> Iterator[Finding]:
    scope = ctx.scope(key)
    if fill.below(FULL):
        yield clear("kvstore-full", f"{fill.value:.0%} of the store is in use", scope)
    elif fill.known and refused.known and ctx.ask.rate(key, "kvstore_evictions").known:
        yield clear("kvstore-full", f"{fill.value:.0%} in use, no write refused and no hit lost", scope)
    elif fill.known:
        why = f"the store is {fill.value:.0%} full and nobody tells what it evicts or refuses"
        yield not_known("kvstore-full", "kvstore_evictions", why, "scrape the store's metrics page", scope)
