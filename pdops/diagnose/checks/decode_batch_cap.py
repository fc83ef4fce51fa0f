"""Requests wait for decode while it runs fewer of them than it did: a limit holds the batch down."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed
from pdops.diagnose.preflight import amount
from pdops.model.cluster import Role
from pdops.model.report import DoNot, Symptom
from pdops.model.series import Window

META = CheckMeta(
    id="decode/batch-cap",
    title="A batch limit leaves decode capacity unused while requests wait",
    causes=("batch-cap-too-low",),
    needs=("running_requests", "queue_depth_capacity", "kv_cache_usage", "itl_seconds"),
    tier=Tier.STAGE,
    explains=(
        "decode-undersized",
        "decode-kv-exhaustion",
        "backpressure-to-prefill",
        "kv-strand-prefill",
        "prefill-undersized",
        "ratio-wrong",
        "timeout-too-short",
        "no-timeout-hang",
    ),
    no_alert="it sets a batch beside its limit; the wait it causes is alerted as PDDecodeKvExhausted and PDTtftHigh",
)

WAITING = 1.0
"""Requests that wait for capacity above which somebody could run who does not."""
FLAT = 0.9
"""Least over greatest batch of a window from which it stands at a limit: one that KV or arrivals make moves."""
FULL = 0.9
"""KV in use from which a lack of room holds a batch down as well, where the limit is not read."""
LESS = 0.8
"""Batch over the greatest of before below which it is the limit that changed, and not the load that reached it."""


def check(ctx: Context) -> Iterator[Finding]:
    """Look for batches that stand at a limit below what they were, while requests wait and steps are no slower."""
    units = ctx.units(Role.DECODE)
    held = {u: found for u in units if (found := _held_down(ctx, u))}
    if not held or 2 * len(held) <= len(units) or _slower(ctx):
        return
    yield Finding(
        status=Status.FIRED,
        cause="batch-cap-too-low",
        scopes=tuple(ctx.scope(p) for p in ctx.pools(Role.DECODE)),
        for_=tuple(w for found in held.values() for w in found),
        symptoms=(Symptom.TTFT,),
        next=(
            "compare max_num_seqs of decode, and what the router lets through per worker, with what ran before",
            "raise the limit again in steps, watching KV in use and ITL",
        ),
        runbooks=("itl-decode-relief",),
        do_not=(
            DoNot(action="lower-batch", why="the batch is what is too small"),
            DoNot(action="scale-out-prefill", why="requests wait for decode; more prefill makes more of them wait"),
        ),
    )


def _held_down(ctx: Context, unit: str) -> tuple[Weighed, ...]:
    waiting = ctx.ask.level(unit, "queue_depth_capacity")
    # A batch above a new limit drains first.
    late = Window((ctx.view.now.start_s + ctx.view.now.end_s) / 2, ctx.view.now.end_s)
    greatest = ctx.ask.highest(unit, "running_requests", 0.9, late)
    least = ctx.ask.highest(unit, "running_requests", 0.25, late)
    base = ctx.view.base
    if not waiting.above(WAITING) or base is None or not greatest.value or least.value is None:
        return ()
    was = ctx.ask.highest(unit, "running_requests", 0.9, base).value
    if not was or least.value < FLAT * greatest.value or not greatest.below(LESS * was):
        return ()
    found = [
        ctx.saw("running_requests", unit, greatest, was, basis="history", ratio=STRONG, group="cap"),
        ctx.saw("queue_depth_capacity", unit, waiting, WAITING, basis="physics", ratio=MODERATE, group="waiting"),
    ]
    limit = amount(ctx, unit, "max_num_seqs")
    if limit is None and ctx.ask.highest(unit, "kv_cache_usage", 0.99).above(FULL):
        return ()
    if limit is not None and greatest.value < FLAT * limit:
        return ()
    if limit is not None:
        found.append(ctx.saw("max_num_seqs", unit, limit, was, basis="config", ratio=STRONG, group="limit"))
    return tuple(found)


def _slower(ctx: Context) -> bool:
    """Whether steps take longer than before: then it is no limit that makes requests wait."""
    for pool in ctx.pools(Role.DECODE):
        now, before = ctx.ask.mean(pool, "itl_seconds"), past.mean(ctx, pool, "itl_seconds")
        if before and now.above(1.2 * before):
            return True
    return False
