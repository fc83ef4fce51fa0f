"""The store restarted and forgot what it holds."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.cache import STORED, WORTH, Share, shares, store_keys
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, not_known
from pdops.diagnose.loglines import Match, evidence, matches, naming
from pdops.model.frame import Event, EventKind
from pdops.model.report import DoNot

META = CheckMeta(
    id="kvstore/metadata-lost",
    title="The KV store restarted and forgot what it holds",
    causes=("kvstore-metadata-loss",),
    needs=("external_cache_hits", "external_cache_queries", "kvstore_used_bytes", "process_start_seconds"),
    tier=Tier.PAIR,
    explains=(
        "prefix-cache-collapse",
        "router-index-loss",
        "kvstore-slow-or-missed-prefetch",
        "cold-start",
        "prefill-undersized",
        "traffic-burst",
        "workload-shift",
    ),
    alert="PDKvStoreMetadataLost",
    panel="kv-store/hit-rate",
)

NOTHING = 0.2
"""A fifth of the former hits is what refills within minutes after everything was lost (from public incidents)."""
RECENT_S = 900.0
"""A store refills over minutes to hours, so a restart counts for longer than for an engine."""
_DO_NOT = (
    DoNot(action="disable-prefix-cache", why="the store answers and refills as requests pass; off, it stays cold"),
    DoNot(action="scale-out-prefill", why="prefill recomputes what was lost; that ends when the store is warm"),
)


def check(ctx: Context) -> Iterator[Finding]:
    """Join a restart of the store with hits or contents that vanished."""
    found = shares(ctx, STORED)
    gone = [s for s in found if _vanished(s)]
    told = naming(matches(ctx), META.causes)
    if told and gone:
        yield _told(ctx, told, _hits(ctx, gone))
    for key in store_keys(ctx):
        events = ctx.events((EventKind.RESTART,), within_s=RECENT_S, worker=key)
        if not events:
            continue
        emptied = _emptied(ctx, key)
        if not gone and not emptied:
            if not found:
                why = "the store restarted and nobody tells how many lookups it still answers"
                fix = "scrape prefill's external cache counters"
                yield not_known("kvstore-metadata-loss", "external_cache_hits", why, fix, ctx.scope(key))
            continue
        yield _lost(ctx, key, events[0], [*_hits(ctx, gone), *emptied])


def _told(ctx: Context, lines: tuple[Match, ...], hits: list[Weighed]) -> Finding:
    """Return that a line names lost metadata and the hits are gone with it; no restart need have been seen."""
    return Finding(
        status=Status.FIRED,
        cause="kvstore-metadata-loss",
        scopes=tuple(dict.fromkeys(ctx.scope(m.worker) for m in lines)),
        for_=(*(evidence(ctx, m) for m in lines), *hits),
        next=tuple(dict.fromkeys(m.spec.first_check for m in lines)),
        runbooks=("kv-store-outage",),
        do_not=_DO_NOT,
    )


def _lost(ctx: Context, key: str, event: Event, seen: list[Weighed]) -> Finding:
    restarted = ctx.saw(
        "process_start_seconds",
        key,
        f"restart {ctx.view.at_s - event.t_s:.0f} s ago",
        None,
        basis="log",
        ratio=STRONG,
        group="restart",
    )
    return Finding(
        status=Status.FIRED,
        cause="kvstore-metadata-loss",
        scopes=(ctx.scope(key),),
        for_=(restarted, *seen),
        next=(
            f"compare the uptime of {key} with the moment hits fell, and read its error codes",
            "shed load while the cache is cold, and watch the hit rate come back",
            "give the store's metadata a replica or a snapshot",
        ),
        runbooks=("kv-store-outage", "backpressure-break"),
        do_not=_DO_NOT,
    )


def _vanished(share: Share) -> bool:
    return share.before is not None and share.before >= WORTH and share.now.below(NOTHING * share.before)


def _hits(ctx: Context, gone: list[Share]) -> list[Weighed]:
    return [ctx.saw(s.signal, s.unit, s.now, s.before, basis="history", ratio=STRONG, group="hits") for s in gone]


def _emptied(ctx: Context, key: str) -> list[Weighed]:
    used = ctx.ask.level(key, "kvstore_used_bytes")
    before = past.level(ctx, key, "kvstore_used_bytes")
    if not before or not used.below(NOTHING * before):
        return []
    return [ctx.saw("kvstore_used_bytes", key, used, before, basis="history", ratio=MODERATE, group="contents")]
