"""Decode holds KV for requests that neither run nor wait."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, clear, not_known
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
    ),
    tier=Tier.STAGE,
    explains=("decode-kv-exhaustion", "decode-undersized", "backpressure-to-prefill", "prefill-undersized"),
    alert="PDDecodeKvLeaked",
    panel="decode/kv-usage",
)

HELD = 0.5
"""Share of the pool in use, over the whole window, that an idle worker cannot account for (from public incidents). Blocks
kept only as prefix cache are free and do not count."""
IDLE = 0.5
"""Requests that run or wait, at most and on any moment of the window, for a worker to be idle."""
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
        for place in (CLIENT, unit):
            aborts = ctx.ask.increase(place, "client_aborts")
            if aborts.above(0):
                for_.append(
                    ctx.saw("client_aborts", place, aborts, 0.0, basis="physics", ratio=MODERATE, group="aborts")
                )
        yield Finding(
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
        )
    if owned:
        yield clear("kv-leak-decode", f"where KV stays above {HELD:.0%}, requests run or wait for it")
    elif free:
        yield clear("kv-leak-decode", f"KV in use fell to {max(free):.0%} or less everywhere")
