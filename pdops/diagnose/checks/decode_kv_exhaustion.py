"""Decode runs out of KV blocks."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import (
    DECISIVE,
    MODERATE,
    STRONG,
    WEAK,
    CheckMeta,
    Finding,
    Status,
    Tier,
    Weighed,
    clear,
    not_known,
)
from pdops.diagnose.limits import FULL
from pdops.model.cluster import Role
from pdops.model.report import DoNot, Scope, Symptom, Verdict
from pdops.model.series import Window

_FREE = ("nothing runs while requests wait, so no block comes free by itself: drain and restart the worker",)

META = CheckMeta(
    id="decode/kv-exhaustion",
    title="Decode runs out of KV blocks and preempts",
    causes=("decode-kv-exhaustion",),
    needs=(
        "running_requests",
        "preemptions",
        "kv_cache_usage",
        "queue_depth_capacity",
        "queue_depth",
        "decode_prealloc_queue_depth",
        "output_length",
    ),
    tier=Tier.STAGE,
    explains=(
        "ratio-wrong",
        "decode-undersized",
        "silent-local-prefill",
        "backpressure-to-prefill",
        "prefill-undersized",
        "mixed-length-jitter",
        "kv-lease-expiry",
        "kv-strand-prefill",
    ),
    alert="PDDecodeKvExhausted",
    panel="decode/kv-usage",
)

SHORT = 0.7
"""Above this share in use a worker has less than the 30 % left that the capacity rules keep free."""
STALLED = 0.5
"""Half of the requests that used to run, or fewer, while KV is full: what holds it does not run."""
WAITING = 1.0
"""Requests that wait for capacity above which a full pool is short of room, and not only well used."""
NOBODY = 0.5
"""Requests that run, at most and on any moment of the window's end, for a pool to stand still."""
STALL_S = 60.0
"""Seconds without one running request, four scrapes at the usual interval, after which it is no pause between two batches."""
_QUEUES = ("decode_prealloc_queue_depth", "queue_depth_capacity", "queue_depth")


def check(ctx: Context) -> Iterator[Finding]:
    """Count preemptions, and look at how full the KV pool got and who waits for it."""
    fine: list[tuple[float, bool]] = []
    everywhere = _everywhere(ctx)
    for unit in ctx.units(Role.DECODE):
        preempted = ctx.ask.increase(unit, "preemptions")
        usage = ctx.ask.highest(unit, "kv_cache_usage", 0.99)
        full = usage.above(FULL)
        waiting = ctx.ask.level(unit, "queue_depth_capacity")
        stalled = _stalled(ctx, unit) if full else []
        if not preempted.above(0) and not (full and (waiting.above(WAITING) or stalled)):
            if usage.value is None:
                continue
            if full and not (preempted.known and waiting.known):
                yield _not_told(ctx, unit, usage.value, "queue_depth_capacity" if preempted.known else "preemptions")
            else:
                fine.append((usage.value, preempted.known))
            continue
        for_: list[Weighed] = []
        if preempted.above(0):
            for_.append(
                ctx.saw("preemptions", unit, preempted, 0.0, basis="physics", ratio=DECISIVE, group="preempted")
            )
        if full:
            for_.append(ctx.saw("kv_cache_usage", unit, usage, FULL, basis="physics", ratio=MODERATE, group="full"))
        if waiting.above(WAITING):
            for_.append(
                ctx.saw(
                    "queue_depth_capacity", unit, waiting, WAITING, basis="physics", ratio=MODERATE, group="waiting"
                )
            )
        against: list[Weighed] = []
        if usage.below(0.5):
            against.append(ctx.saw("kv_cache_usage", unit, usage, FULL, basis="physics", ratio=STRONG, group="full"))
        longer = _longer_outputs(ctx, unit)
        still = _stands_still(ctx, unit)
        yield Finding(
            status=Status.FIRED,
            cause="decode-kv-exhaustion",
            scopes=everywhere or (ctx.scope(unit),),
            for_=(*for_, *stalled, *longer, *still),
            against=tuple(against),
            verdict=Verdict.FAULT if still else Verdict.OVERLOAD,
            symptoms=(Symptom.ITL,),
            next=(
                *(_FREE if still else ()),
                "limit what is admitted to decode (max_num_seqs, router cap) until preemptions stop",
                "compare output lengths with an hour ago: reasoning tokens fill KV without more requests",
                "add decode workers if the load is meant to stay",
            ),
            runbooks=("itl-decode-relief", "scale-out-decode", "backpressure-break"),
            do_not=(
                DoNot(
                    action="scale-out-prefill", why="decode holds the KV; more prefill sends it more than it can keep"
                ),
                DoNot(action="evict-kv", why="preempted requests are computed again, which costs more than it frees"),
            ),
        )
    if fine:
        rest = ", no preemption" if all(told for _, told in fine) else ""
        yield clear("decode-kv-exhaustion", f"KV in use at most {max(fine)[0]:.0%}{rest}")


def _everywhere(ctx: Context) -> tuple[Scope, ...]:
    """Return the pools when most of their workers lack room: who preempts first is then chance."""
    units = ctx.units(Role.DECODE)
    if len(units) < 3:
        return ()
    short = [u for u in units if ctx.ask.highest(u, "kv_cache_usage", 0.99).above(SHORT)]
    return tuple(ctx.scope(p) for p in ctx.pools(Role.DECODE)) if 2 * len(short) > len(units) else ()


def _not_told(ctx: Context, unit: str, usage: float, absent: str) -> Finding:
    why = f"KV is {usage:.0%} full and nobody tells whether requests are preempted or wait for it"
    return not_known("decode-kv-exhaustion", absent, why, scope=ctx.scope(unit))


def _stalled(ctx: Context, unit: str) -> list[Weighed]:
    """Return that far fewer requests run than before: a full pool, or one full rank of it, lets nothing step."""
    running = ctx.ask.level(unit, "running_requests")
    before = ctx.before(lambda s, w: ctx.ask.level(s, "running_requests", w), unit)
    if before is None or before <= 1.0 or not running.below(STALLED * before):
        return []
    return [ctx.saw("running_requests", unit, running, before, basis="history", ratio=MODERATE, group="waiting")]


def _stands_still(ctx: Context, unit: str) -> list[Weighed]:
    """Return that nothing runs although requests wait: what took their blocks never gives them back, which is no overload."""
    end = Window(max(ctx.view.now.start_s, ctx.view.at_s - STALL_S), ctx.view.at_s)
    running = ctx.ask.highest(unit, "running_requests", 1.0, end)
    if not running.below(NOBODY):
        return []
    waiting = {s: r for s in _QUEUES if (r := ctx.ask.highest(unit, s, 0.0, end)).above(NOBODY)}
    if not waiting:
        return []
    found = [ctx.saw("running_requests", unit, running, None, basis="physics", ratio=MODERATE, group="still")]
    found += [ctx.saw(s, unit, r, 0.0, basis="physics", ratio=MODERATE, group="still") for s, r in waiting.items()]
    return found


def _longer_outputs(ctx: Context, unit: str) -> list[Weighed]:
    now = ctx.ask.mean(unit, "output_length")
    before = ctx.before(lambda s, w: ctx.ask.mean(s, "output_length", w), unit)
    if before is None or before <= 0 or not now.above(1.5 * before):
        return []
    return [ctx.saw("output_length.mean", unit, now, before, basis="history", ratio=WEAK, group="outputs")]
