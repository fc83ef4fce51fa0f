"""The shared KV store does not answer."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.cache import STORED, shares, store_keys, went_down
from pdops.diagnose.context import Context
from pdops.diagnose.finding import DECISIVE, MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.symptoms import ERROR_SHARE
from pdops.model.cluster import CLIENT
from pdops.model.frame import EventKind
from pdops.model.report import DoNot, Symptom

META = CheckMeta(
    id="kvstore/down",
    title="The shared KV store does not answer",
    causes=("kvstore-down",),
    needs=(
        "kvstore_up",
        "kvstore_total_bytes",
        "external_cache_hits",
        "request_failure",
        "scrape_age_seconds",
    ),
    tier=Tier.PRESENCE,
    explains=(
        "telemetry-gap",
        "prefix-cache-collapse",
        "router-index-loss",
        "kvstore-metadata-loss",
        "kvstore-slow-or-missed-prefetch",
        "kvstore-full",
        "prefill-undersized",
        "traffic-burst",
        "workload-shift",
        "cold-start",
    ),
    alert="PDKvStoreDown",
    panel="kv-store/up",
)

GONE = 0.5
"""`kvstore_up` is 0 or 1; below the middle it is not up."""


def check(ctx: Context) -> Iterator[Finding]:
    """Look for a store that is away, says it does not serve, or has no memory behind it."""
    for_: list[Weighed] = []
    scopes = []
    known = []
    for key in store_keys(ctx):
        seen = tuple(_away(ctx, key))
        for_ += seen
        if seen:
            scopes.append(ctx.scope(key))
        up = ctx.ask.last(key, "kvstore_up")
        if up.above(GONE):
            known.append(key)
    if not for_:
        if known:
            yield clear("kvstore-down", f"{', '.join(known)} answers")
        return
    for share in shares(ctx, STORED):
        if share.fell:
            for_.append(
                ctx.saw(
                    share.signal, share.unit, share.now, share.before, basis="history", ratio=MODERATE, group="hits"
                )
            )
    failing = ctx.error_share().above(ERROR_SHARE)
    if failing:
        failed = ctx.ask.increase(CLIENT, "request_failure")
        for_.append(ctx.saw("request_failure", CLIENT, failed, 0.0, basis="physics", ratio=MODERATE, group="failures"))
    yield Finding(
        status=Status.FIRED,
        cause="kvstore-down",
        scopes=tuple(scopes),
        for_=tuple(for_),
        symptoms=(Symptom.ERRORS,) if failing else (),
        next=(
            "look at the store's process, its last log lines and its coordination service",
            "check that a request without the store is computed, not failed",
        ),
        runbooks=("kv-store-outage", "prefix-cache-fallback"),
        do_not=(
            DoNot(action="scale-out-prefill", why="prefill only computes what the store no longer gives back"),
            DoNot(action="raise-retries", why="each retry computes the same prompt again without the store"),
        ),
    )


def _away(ctx: Context, key: str) -> Iterator[Weighed]:
    up = ctx.ask.last(key, "kvstore_up")
    if up.below(GONE):
        yield ctx.saw("kvstore_up", key, up, 1.0, basis="probe", ratio=DECISIVE, group="up")
    if went_down(ctx, key) and not ctx.nothing_answers:
        sure = any(e.kind is EventKind.DOWN for e in ctx.events((EventKind.DOWN,), worker=key))
        why = ctx.health(key).why or "went down"
        weight = DECISIVE if sure else STRONG
        yield ctx.saw("scrape_age_seconds", key, why, "answers", basis="probe", ratio=weight, group="up")
    total = ctx.ask.last(key, "kvstore_total_bytes")
    before = past.level(ctx, key, "kvstore_total_bytes")
    if total.value == 0.0 and before:
        yield ctx.saw("kvstore_total_bytes", key, total, before, basis="history", ratio=STRONG, group="memory")
