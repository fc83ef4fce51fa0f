"""Token gaps are long: decode's batch, one slow worker, or longer outputs."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.deviance import spread
from pdops.diagnose.finding import MODERATE, STRONG, WEAK, CheckMeta, Finding, Status, Tier, Weighed, clear, not_known
from pdops.model.cluster import Role
from pdops.model.report import DoNot, Symptom, Verdict
from pdops.model.series import Reading, Window

META = CheckMeta(
    id="decode/itl-high",
    title="ITL is high: decode is at its limit, or one worker is slow",
    causes=("decode-undersized", "decode-slow-worker"),
    needs=("itl_seconds", "running_requests", "queue_depth_capacity", "kv_cache_usage", "generated_tokens"),
    tier=Tier.STAGE,
    explains=("backpressure-to-prefill",),
    alert="PDItlHigh",
    panel="decode/itl",
)

SLOWER = 1.5
"""A mean this many times its peers' or history is out of line."""
LESS = 0.7
"""Running requests or output tokens below this share of before: a pool at its limit does more than before, not less."""


def check(ctx: Context) -> Iterator[Finding]:
    """Ask whether ITL is over its promise, and whether the pool or one worker is to blame."""
    itl = ctx.itl()
    before = ctx.itl(ctx.view.base).value if ctx.view.base else None
    promised = ctx.slo.itl_s
    limit = promised if promised is not None else (before * SLOWER if before else None)
    if itl.value is None:
        return
    if limit is None:
        fix = "set slo.itl_s in the inventory, or wait for five minutes of history"
        yield not_known("decode-undersized", "itl_seconds", "nothing to compare ITL with", fix)
        return
    high = ctx.exceeds("itl_seconds", limit)
    slow = _slow_workers(ctx)
    if not high:
        # A slow worker makes few of the gaps that a percentile counts, but breaks the promise of all it serves.
        slow = [w for w in slow if w.evidence.scope and ctx.ask.mean(w.evidence.scope.id, "itl_seconds").above(limit)]
    if slow:
        yield Finding(
            status=Status.FIRED,
            cause="decode-slow-worker",
            scopes=tuple(w.evidence.scope for w in slow if w.evidence.scope),
            for_=tuple(slow),
            symptoms=(Symptom.ITL,),
            next=("compare clocks, throttle reasons and neighbours of the slow worker's GPU with its peers",),
            runbooks=("routing-rebalance", "restart-worker"),
            do_not=(DoNot(action="scale-out-decode", why="the pool has room; one worker is slow"),),
        )
    if not high:
        yield _not_high(itl, limit)
        return
    for_ = [
        ctx.saw(
            "itl_seconds",
            None,
            itl,
            promised or before,
            basis="config" if promised else "history",
            ratio=MODERATE,
            group="itl",
        )
    ]
    crowded = _crowded(ctx)
    for_ += crowded
    yield Finding(
        status=Status.FIRED,
        cause="decode-undersized",
        scopes=tuple(ctx.scope(p) for p in ctx.pools(Role.DECODE)),
        for_=tuple(for_),
        against=(*slow, *_does_less(ctx)),
        verdict=Verdict.OVERLOAD,
        symptoms=(Symptom.ITL,),
        next=(
            "compare running requests and batch limit with yesterday at this hour",
            "add decode workers, or lower the admission limit until ITL holds",
        ),
        runbooks=("itl-decode-relief", "scale-out-decode") if crowded else ("itl-decode-relief",),
        do_not=(DoNot(action="scale-out-prefill", why="TTFT is fine; more prefill sends decode more work"),),
    )


def _not_high(itl: Reading, limit: float) -> Finding:
    if itl.bound == "ge":
        why = f"ITL is only known to be at least {itl.value:.3g} s"
        return not_known("decode-undersized", "itl_seconds", why, "scrape the buckets, or measure ITL at the router")
    return clear("decode-undersized", f"ITL {itl.value:.3g} s is not above {limit:.3g} s")


def _mean(ctx: Context, scope: str, window: Window | None) -> Reading:
    return ctx.ask.mean(scope, "itl_seconds", window)


def _slow_workers(ctx: Context) -> list[Weighed]:
    peers = spread(ctx, lambda s, w: _mean(ctx, s, w), Role.DECODE, floor=0.001)
    return [
        ctx.saw("itl_seconds.mean", d.unit, d.now, d.usual, basis="peer", ratio=STRONG, group="slow")
        for d in peers.deviants
        if d.z > 0 and d.ratio > SLOWER
    ]


def _does_less(ctx: Context) -> list[Weighed]:
    """Return decode workers that run fewer requests or make fewer tokens than before: something holds them up."""
    found = []
    for unit in ctx.units(Role.DECODE):
        running = ctx.ask.level(unit, "running_requests")
        ran = ctx.before(lambda s, w: ctx.ask.level(s, "running_requests", w), unit)
        if ran is not None and ran > 1.0 and running.below(LESS * ran):
            found.append(
                ctx.saw("running_requests", unit, running, ran, basis="history", ratio=STRONG, group="does-less")
            )
        made = ctx.ask.rate(unit, "generated_tokens")
        before = ctx.before(lambda s, w: ctx.ask.rate(s, "generated_tokens", w), unit)
        if before is not None and before > 0 and made.below(LESS * before):
            found.append(
                ctx.saw("generated_tokens.rate", unit, made, before, basis="history", ratio=STRONG, group="does-less")
            )
    return found


def _crowded(ctx: Context) -> list[Weighed]:
    found = []
    for unit in ctx.units(Role.DECODE):
        running = ctx.ask.level(unit, "running_requests")
        before = ctx.before(lambda s, w: ctx.ask.level(s, "running_requests", w), unit)
        if before is not None and before > 0 and running.above(1.3 * before):
            found.append(
                ctx.saw("running_requests", unit, running, before, basis="history", ratio=MODERATE, group="batch")
            )
        waiting = ctx.ask.level(unit, "queue_depth_capacity")
        if waiting.above(0.5):
            found.append(
                ctx.saw("queue_depth_capacity", unit, waiting, 0.0, basis="physics", ratio=MODERATE, group="waiting")
            )
        usage = ctx.ask.level(unit, "kv_cache_usage")
        if usage.above(0.8):
            found.append(ctx.saw("kv_cache_usage", unit, usage, 0.8, basis="physics", ratio=WEAK, group="full"))
    return found
