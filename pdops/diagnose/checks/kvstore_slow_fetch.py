"""The store finds KV, and fetching it costs more time than it saves."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.cache import STORED, shares, stores
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, WEAK, CheckMeta, Finding, Status, Tier, Weighed, clear, not_known
from pdops.diagnose.load import GREW
from pdops.diagnose.symptoms import picture
from pdops.model.cluster import CLIENT, Role
from pdops.model.report import DoNot, Scope, Symptom

META = CheckMeta(
    id="kvstore/slow-fetch",
    title="The store finds KV, but fetching it delays the first token",
    causes=("kvstore-slow-or-missed-prefetch",),
    needs=(
        "external_cache_hits",
        "external_cache_queries",
        "ttft_seconds",
        "queue_depth_deferred",
        "queue_depth",
        "prefill_seconds",
        "kv_transfer_seconds",
        "queue_seconds",
    ),
    tier=Tier.STAGE,
    # Who waits for the store finds nothing meanwhile, and the patience of clients and router ends.
    explains=(
        "prefill-undersized",
        "workload-shift",
        "ratio-wrong",
        "prefix-cache-collapse",
        "router-index-loss",
        "router-fault",
        "keepalive-mismatch",
        "timeout-too-short",
    ),
    alert="PDKvStoreFetchSlow",
    panel="kv-store/fetch-wait",
)

WAITS = 1.0
"""Requests per prefill worker that wait for KV; on a prefill worker only the store can make them wait."""
SLOWER = 2.0
MOST = 0.5
"""Share of a prefill worker's queue that waits for KV above which the store is what the queue is for."""
FELT = 0.05
"""Share of the promised TTFT by which a stage must have grown to be where time went."""
UNSEEN_CAP = 0.45
"""Most that the contradiction of good hits and slow first tokens carries while the fetch itself is not seen."""


def check(ctx: Context) -> Iterator[Finding]:
    """Join good hits and slow first tokens (from public incidents) with requests that wait for the store."""
    known = shares(ctx, STORED)
    held = [s for s in known if s.held]
    waits = _waits(ctx)
    most = tuple(w for u in ctx.units(Role.PREFILL) for w in _most(ctx, u)) if waits and (known or stores(ctx)) else ()
    if not most and not (held and picture(ctx).ttft_high):
        return
    unseen = [u for u in ctx.units(Role.PREFILL) if not ctx.ask.level(u, "queue_depth_deferred").known]
    hits = tuple(
        ctx.saw(s.signal, s.unit, s.now, s.before, basis="history", ratio=MODERATE, group="hits") for s in held
    )
    if not waits and not unseen:
        yield clear(
            "kvstore-slow-or-missed-prefetch", f"no prefill worker has more than {WAITS:g} waiting for the store"
        )
        return
    yield Finding(
        status=Status.FIRED,
        cause="kvstore-slow-or-missed-prefetch",
        scopes=_where(ctx, tuple(dict.fromkeys(w.evidence.scope for w in most if w.evidence.scope)))
        or tuple(ctx.scope(s.unit) for s in held),
        for_=(*hits, *waits, *most, *_computing_is_steady(ctx)),
        against=_time_is_elsewhere(ctx),
        symptoms=(Symptom.TTFT,),
        next=(
            "compare the store's fetch time per token with the time prefill needs to compute one",
            "look at the prefetch policy, its timeout and the tier the hits come from (memory, disk)",
            "switch the store off for one prefill worker and compare its first tokens",
        ),
        runbooks=("prefix-cache-fallback", "kv-store-outage"),
        do_not=(DoNot(action="scale-out-prefill", why="prefill waits for the store; it does not lack compute"),),
        cap=0.97 if waits else UNSEEN_CAP,
    )
    if not waits:
        why = "nobody tells how many requests wait for KV from the store on prefill"
        yield not_known("kvstore-slow-or-missed-prefetch", "queue_depth_deferred", why)


def _where(ctx: Context, waiting: tuple[Scope, ...]) -> tuple[Scope, ...]:
    """Return the store where all of prefill waits for it, else those who wait."""
    store = tuple(ctx.scope(w.id) for w in stores(ctx))
    return store if store and len(waiting) == len(ctx.units(Role.PREFILL)) else waiting


def _waits(ctx: Context) -> tuple[Weighed, ...]:
    found = []
    for unit in ctx.units(Role.PREFILL):
        waiting = ctx.ask.level(unit, "queue_depth_deferred")
        before = past.level(ctx, unit, "queue_depth_deferred")
        if not waiting.above(max(WAITS, SLOWER * before) if before is not None else WAITS):
            continue
        # Without a past it may have been so all along: then only the least that counts is exceeded.
        found.append(
            ctx.saw("queue_depth_deferred", unit, waiting, WAITS, basis="physics", ratio=MODERATE, group="waits")
            if before is None
            else ctx.saw("queue_depth_deferred", unit, waiting, before, basis="history", ratio=STRONG, group="waits")
        )
    return tuple(found)


def _most(ctx: Context, unit: str) -> tuple[Weighed, ...]:
    """Return that most of a worker's queue waits for KV and not for a place in the batch."""
    waiting, queue = ctx.ask.level(unit, "queue_depth_deferred"), ctx.ask.level(unit, "queue_depth")
    if queue.value is None or not waiting.above(max(WAITS, MOST * queue.value)) or waiting.above(queue.value + WAITS):
        return ()
    return (
        ctx.saw(
            "queue_depth_deferred", unit, waiting, MOST * queue.value, basis="physics", ratio=MODERATE, group="most"
        ),
    )


def _computing_is_steady(ctx: Context) -> tuple[Weighed, ...]:
    found = []
    for unit in ctx.units(Role.PREFILL):
        now = ctx.ask.mean(unit, "prefill_seconds")
        before = past.mean(ctx, unit, "prefill_seconds")
        if before and now.below(1.2 * before):
            found.append(
                ctx.saw("prefill_seconds.mean", unit, now, before, basis="history", ratio=WEAK, group="computing")
            )
    return tuple(found)


def _time_is_elsewhere(ctx: Context) -> tuple[Weighed, ...]:
    """Return stages behind prefill that take longer than they did, by what clients feel: then the store need not be to blame."""
    waited = ctx.slo.ttft_s or ctx.ask.mean(CLIENT, "ttft_seconds").value or 0.0
    found = []
    for unit in ctx.units(Role.DECODE):
        for signal in ("kv_transfer_seconds", "queue_seconds"):
            now = ctx.ask.mean(unit, signal)
            before = past.mean(ctx, unit, signal)
            if before and now.above(max(GREW * before, before + FELT * waited)):
                found.append(
                    ctx.saw(f"{signal}.mean", unit, now, before, basis="history", ratio=STRONG, group="elsewhere")
                )
    return tuple(found)
