"""The store says that it has the KV, and reading it fails."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.cache import STORED, WORTH
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, WEAK, CheckMeta, Finding, Status, Tier
from pdops.diagnose.pairing import STORES, connectors
from pdops.model.cluster import Role, Worker
from pdops.model.report import DoNot, Missing, Symptom

META = CheckMeta(
    id="kvstore/hits-fail",
    title="The store promises KV that cannot be read",
    causes=("kvstore-metadata-stale",),
    needs=("external_cache_hits", "external_cache_queries", "kv_transfer_failures", "queue_depth_deferred"),
    tier=Tier.PAIR,
    explains=("transport-error", "kvstore-slow-or-missed-prefetch", "prefill-undersized"),
    alert="PDKvStoreHitsFail",
    panel="kv-store/failed-reads",
)

WAITS = 1.0
"""Requests that wait for KV above which reads that fail hold somebody up."""

UNSEEN_CAP = 0.45
"""Most while failed reads are not counted: reads that are only slow make requests wait alike."""


def check(ctx: Context) -> Iterator[Finding]:
    """Look for workers whose reads come from a store, where lookups hit and reads fail."""
    for worker in ctx.cluster.of_role(Role.PREFILL, Role.DECODE):
        if not _reads_from_store(ctx, worker):
            continue
        failed, share = ctx.ask.increase(worker.id, "kv_transfer_failures"), ctx.ask.ratio(worker.id, *STORED)
        waiting = ctx.ask.level(worker.id, "queue_depth_deferred")
        waits = waiting.above(WAITS)
        if not share.above(WORTH) or not (failed.above(0) or (waits and not failed.known)):
            continue
        for_ = [ctx.saw("external_cache_hits", worker.id, share, WORTH, basis="physics", ratio=MODERATE, group="hits")]
        if failed.known:
            for_.append(
                ctx.saw("kv_transfer_failures", worker.id, failed, 0.0, basis="physics", ratio=STRONG, group="failures")
            )
        if waits:
            for_.append(
                ctx.saw("queue_depth_deferred", worker.id, waiting, WAITS, basis="physics", ratio=WEAK, group="waits")
            )
        yield Finding(
            status=Status.FIRED,
            cause="kvstore-metadata-stale",
            scopes=(ctx.scope(worker.id),),
            for_=tuple(for_),
            missing=() if failed.known else (_uncounted(ctx, worker),),
            symptoms=(Symptom.TTFT,),
            next=(
                "find a key whose read fails again and again in the worker's log, and remove it from the store",
                "compare failed reads with hits by the minute: if they go together, metadata outlived the data",
                "take one prefill worker off the store and compare its first tokens",
            ),
            runbooks=("prefix-cache-fallback", "kv-store-outage"),
            do_not=(
                DoNot(action="scale-out-prefill", why="a new worker asks the same store and is promised the same"),
                DoNot(action="raise-retries", why="a retry is promised the same KV and fails the same way"),
            ),
            cap=0.97 if failed.known else UNSEEN_CAP,
        )


def _uncounted(ctx: Context, worker: Worker) -> Missing:
    why = f"whether reads of the store fail on {worker.id} is not told"
    return Missing(
        signal="kv_transfer_failures", why=why, fix="scrape its connector's metrics", scope=ctx.scope(worker.id)
    )


def _reads_from_store(ctx: Context, worker: Worker) -> bool:
    """Whether all KV a worker reads comes from a store, by its connectors; what is not known is not."""
    names = connectors(ctx, worker.id)
    return bool(names) and all(any(part in name.casefold() for part in STORES) for name in names or ())
