"""Decode holds KV for requests that neither run nor wait."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, WEAK, CheckMeta, Finding, Status, Tier, Weighed, clear, not_known
from pdops.model.cluster import CLIENT, Role
from pdops.model.report import DoNot

META = CheckMeta(
    id="decode/kv-leak",
    title="Decode holds KV while nothing runs or waits",
    causes=("kv-leak-decode",),
    needs=(
        "kv_cache_usage",
        "running_requests",
        "queue_depth",
        "transfer_queue_depth",
        "decode_prealloc_queue_depth",
        "kv_fetch_done_waiting",
        "client_aborts",
        "queue_depth_deferred",
        "kv_transfer_bytes",
    ),
    tier=Tier.STAGE,
    explains=("decode-kv-exhaustion", "decode-undersized", "backpressure-to-prefill", "prefill-undersized"),
    alert="PDDecodeKvLeaked",
    panel="decode/kv-usage",
)

HELD = 0.5
"""Share of the pool in use, over the whole window, that an idle worker cannot account for (from public incidents). Blocks
kept only as prefix cache are free and do not count."""
FULL = 0.9
"""Share in use above which nobody is let in (from public incidents): then requests that wait need not hold what is full."""
IDLE = 0.5
"""Requests that run or wait, at most and on any moment of the window, for a worker to be idle."""
CROWDED_CAP = 0.85
"""Most while requests wait: some of them may hold KV for what they still have to load."""
_FETCHING = ("transfer_queue_depth", "decode_prealloc_queue_depth", "kv_fetch_done_waiting")


def check(ctx: Context) -> Iterator[Finding]:
    """Compare the least KV in use over the window with the most requests there were."""
    free: list[float] = []
    owned: list[str] = []
    for unit in ctx.units(Role.DECODE):
        scope = ctx.scope(unit)
        held = ctx.ask.highest(unit, "kv_cache_usage", 0.0)
        busy = {signal: ctx.ask.highest(unit, signal) for signal in ("running_requests", "queue_depth")}
        fetching = {s: r for s in _FETCHING if (r := ctx.ask.highest(unit, s)).known}
        if held.value is None:
            continue
        if not held.above(HELD):
            free.append(held.value)
            continue
        crowded = [] if any(r.above(IDLE) for r in fetching.values()) else _crowded_out(ctx, unit)
        if crowded:
            yield _finding(ctx, unit, crowded, cap=CROWDED_CAP)
            continue
        working = {s: r for s, r in {**busy, **fetching}.items() if r.above(IDLE)}
        if working:
            owned.append(unit)
            continue
        absent = [signal for signal, reading in busy.items() if not reading.known]
        if absent:
            why = f"KV is at least {held.value:.0%} in use and nobody tells whether requests hold it"
            yield not_known("kv-leak-decode", absent[0], why, scope=scope)
            continue
        for_ = [ctx.saw("kv_cache_usage", unit, held, HELD, basis="physics", ratio=STRONG, group="held")]
        for_ += [
            ctx.saw(signal, unit, reading, None, basis="physics", ratio=STRONG, group="idle")
            for signal, reading in {**busy, **fetching}.items()
        ]
        yield _finding(ctx, unit, for_)
    if owned:
        yield clear("kv-leak-decode", f"where KV stays above {HELD:.0%}, requests run or wait for it")
    elif free:
        yield clear("kv-leak-decode", f"KV in use fell to {max(free):.0%} or less everywhere")


def _crowded_out(ctx: Context, unit: str) -> list[Weighed]:
    """Return that a pool is full all the time, nothing runs in it, and requests wait although KV can still arrive."""
    held = ctx.ask.highest(unit, "kv_cache_usage", 0.0)
    running = ctx.ask.highest(unit, "running_requests")
    waiting = {s: r for s in ("queue_depth", "queue_depth_deferred") if (r := ctx.ask.level(unit, s)).above(IDLE)}
    still = ctx.ask.increase(unit, "kv_transfer_bytes").value == 0.0
    if not held.above(FULL) or not running.below(IDLE) or not waiting or still:
        return []
    return [
        ctx.saw("kv_cache_usage", unit, held, FULL, basis="physics", ratio=STRONG, group="held"),
        ctx.saw("running_requests", unit, running, None, basis="physics", ratio=MODERATE, group="idle"),
        *(ctx.saw(s, unit, r, 0.0, basis="physics", ratio=WEAK, group="crowded") for s, r in waiting.items()),
    ]


def _finding(ctx: Context, unit: str, for_: list[Weighed], cap: float = 0.97) -> Finding:
    scope = ctx.scope(unit)
    for place in (CLIENT, unit):
        aborts = ctx.ask.increase(place, "client_aborts")
        if aborts.above(0):
            for_.append(ctx.saw("client_aborts", place, aborts, 0.0, basis="physics", ratio=MODERATE, group="aborts"))
    return Finding(
        status=Status.FIRED,
        cause="kv-leak-decode",
        scopes=(scope,),
        for_=tuple(for_),
        next=(
            "see whether requests were aborted while their KV was loading, or a prefill peer restarted meanwhile",
            f"drain and restart {scope} to free the blocks; nothing else gives them back",
            "move to an engine release that frees KV of aborted loads",
        ),
        runbooks=("restart-worker", "itl-decode-relief"),
        do_not=(
            DoNot(action="scale-out-decode", why="the pool has room on paper; new workers leak as well"),
            DoNot(action="lower-batch", why="nothing runs; the KV is not held by the batch"),
        ),
        cap=cap,
    )
