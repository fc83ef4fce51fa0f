"""Decode makes tokens more slowly than its batch explains: all of a pool, or few of its workers."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.conditioned import shifts
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.symptoms import picture
from pdops.model.cluster import Role, pool_key
from pdops.model.report import DoNot, Layer, Symptom
from pdops.stats.robust import median

META = CheckMeta(
    id="decode/pool-slow",
    title="Decode is slower than its batch explains: all workers, or few",
    causes=("gpu-throttle", "decode-slow-worker"),
    needs=("itl_seconds", "running_requests", "kv_cache_usage", "queue_depth_capacity", "output_length"),
    tier=Tier.STAGE,
    explains=(
        "decode-undersized",
        "decode-kv-exhaustion",
        "backpressure-to-prefill",
        "kv-strand-prefill",
        "prefill-undersized",
        "ratio-wrong",
        "timeout-too-short",
        "router-imbalance",
    ),
    no_alert="it sets token gaps beside the batch that makes them; what clients feel of it is alerted as PDItlHigh",
)

SLOWER = 1.5
"""A token gap this many times what the batch explains is out of line."""
WAITING = 1.0
"""Requests that wait for capacity above which KV in use is not only that of the batch."""
_LEAST = 50
"""Gaps in a window below which a mean is chance."""


def check(ctx: Context) -> Iterator[Finding]:
    """Ask whether token gaps grew by more than the batch did, at most of the workers.

    A step has a fixed part and parts that grow with sequences and with their KV, so gaps grow at most in proportion to the
    greater of the two; and where the course of five minutes is known, to the line through it.
    """
    if not (picture(ctx).itl_high or picture(ctx).ttft_high):
        return
    beyond = {s.scope: s.expected for s in shifts(ctx) if s.signal == "itl_seconds" and s.unexplained}
    for pool in ctx.pools(Role.DECODE):
        units = [u for u in ctx.units(Role.DECODE) if u == pool or _pool_of(ctx, u) == pool]
        slow = {u: e for u in units if (e := _expected(ctx, u, beyond.get(pool))) is not None}
        known = [u for u in units if ctx.ask.mean(u, "itl_seconds").n >= _LEAST]
        if not known:
            continue
        if slow and 2 * len(slow) <= len(known) and _apart(ctx, slow, known):
            yield _few(ctx, slow)
            continue
        if 2 * len(slow) <= len(known) or not slow:
            yield clear(
                "gpu-throttle", f"token gaps of {len(known) - len(slow)} of {len(known)} workers fit their batch"
            )
            continue
        yield Finding(
            status=Status.FIRED,
            cause="gpu-throttle",
            layer=Layer.DECODE,
            scopes=(ctx.scope(pool),),
            for_=(*_seen(ctx, slow), *_felt(ctx)),
            symptoms=(Symptom.ITL,),
            next=(
                "read clocks, power and temperature of all decode GPUs: what do they share, such as a power cap or a rack?",
                "see what was rolled out to all of them at once: driver, build, options, a neighbour on the hosts",
            ),
            runbooks=("itl-decode-relief", "scale-out-decode"),
            do_not=(
                DoNot(action="scale-out-prefill", why="decode is slow; more prefill sends it more than it can keep"),
                DoNot(action="lower-batch", why="the batch is no larger than before for what the steps take"),
            ),
        )


def _apart(ctx: Context, slow: dict[str, float], known: list[str]) -> bool:
    """Whether gaps grew far more at the slow than they did at the others: else all are a little slow."""
    grown = {
        u: (ctx.ask.mean(u, "itl_seconds").value or 0.0) / was
        for u in known
        if (was := past.mean(ctx, u, "itl_seconds"))
    }
    others = median([g for u, g in grown.items() if u not in slow])
    return others is not None and all(grown[u] > SLOWER * max(1.0, others) for u in slow if u in grown)


def _few(ctx: Context, slow: dict[str, float]) -> Finding:
    return Finding(
        status=Status.FIRED,
        cause="decode-slow-worker",
        scopes=tuple(ctx.scope(u) for u in slow),
        for_=_seen(ctx, slow),
        symptoms=(Symptom.ITL,),
        next=("compare clocks, throttle reasons and neighbours of the slow worker's GPU with its peers",),
        runbooks=("routing-rebalance", "restart-worker"),
        do_not=(DoNot(action="scale-out-decode", why="the others have room; requests still wait at the slow one"),),
    )


def _pool_of(ctx: Context, unit: str) -> str | None:
    worker = ctx.cluster.get(unit)
    return pool_key(worker.pool) if worker is not None else None


def _expected(ctx: Context, unit: str, line: float | None) -> float | None:
    """Return what a worker's gaps could be at most for its batch, in seconds, when they are longer; else None."""
    now, before = ctx.ask.mean(unit, "itl_seconds"), past.mean(ctx, unit, "itl_seconds")
    if now.value is None or not before or now.n < _LEAST:
        return None
    if line is not None and now.above(line) and now.above(SLOWER * before):
        return line
    times = 1.0
    # What waits for a slot may hold KV already, and no step reads it.
    waits = ctx.ask.level(unit, "queue_depth_capacity").above(WAITING)
    for signal in ("running_requests",) if waits else ("running_requests", "kv_cache_usage"):
        held, was = ctx.ask.level(unit, signal), past.level(ctx, unit, signal)
        if held.value is None or not was:
            return None
        times = max(times, held.value / was)
    if waits:
        grown = (ctx.ask.mean(unit, "output_length").value, past.mean(ctx, unit, "output_length"))
        times *= max(1.0, grown[0] / grown[1]) if grown[0] is not None and grown[1] else 1.0
    return before * times if now.above(SLOWER * before * times) else None


def _seen(ctx: Context, slow: dict[str, float]) -> tuple[Weighed, ...]:
    return tuple(
        ctx.saw(
            "itl_seconds.mean", u, ctx.ask.mean(u, "itl_seconds"), most, basis="history", ratio=STRONG, group="slow"
        )
        for u, most in slow.items()
    )


def _felt(ctx: Context) -> tuple[Weighed, ...]:
    if not picture(ctx).itl_high:
        return ()
    return (ctx.saw("itl_seconds", None, ctx.itl(), ctx.slo.itl_s, basis="config", ratio=MODERATE, group="itl"),)
