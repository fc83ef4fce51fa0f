"""A queue of hand-offs only grows: something in it waits for a partner that does not come."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.model.cluster import Role
from pdops.model.report import DoNot, Missing, Verdict

META = CheckMeta(
    id="transfer/hand-off-stuck",
    title="Requests between prefill and decode come and never leave",
    causes=("no-timeout-hang",),
    needs=(
        "prefill_queue_depth",
        "transfer_queue_depth",
        "kv_transfer_bytes",
        "decode_prealloc_queue_depth",
        "queue_depth_capacity",
        "kv_cache_usage",
    ),
    tier=Tier.PAIR,
    no_alert="it only says where to look; requests that time out have their own alert",
)

CAP = 0.45
"""A queue that only grows is also what too little room on decode looks like, so this alone decides nothing."""
SOME = 0.5
"""Requests in the queue, at least and on any moment of the window."""
FULL = 0.9
"""KV in use on decode above which it has no room for what prefill offers (from public incidents)."""
_QUEUES = {Role.PREFILL: "prefill_queue_depth", Role.DECODE: "transfer_queue_depth"}
_ADMISSION = ("decode_prealloc_queue_depth", "queue_depth_capacity")


def check(ctx: Context) -> Iterator[Finding]:
    """Look for a hand-off queue that never fell to where it had been in the minutes before."""
    stuck: list[Weighed] = []
    for role, signal in _QUEUES.items():
        for unit in ctx.units(role):
            # On decode, bytes that come in mean that the queue is worked off, however long it is.
            if role is Role.DECODE and ctx.ask.increase(unit, "kv_transfer_bytes").above(0):
                continue
            stuck += _only_grows(ctx, unit, signal)
    if not stuck:
        return
    short = _no_room(ctx)
    if short:
        yield clear(
            "no-timeout-hang", f"{short[0].evidence.signal} says that decode has no room, so prefill has to wait"
        )
        return
    places = tuple(dict.fromkeys(w.evidence.scope for w in stuck if w.evidence.scope is not None))
    yield Finding(
        status=Status.FIRED,
        cause="no-timeout-hang",
        scopes=places,
        for_=tuple(stuck),
        missing=_unseen(ctx),
        verdict=Verdict.UNKNOWN,
        next=(
            f"look at the age of the oldest request in that queue on {', '.join(str(p) for p in places[:3])}: older than every "
            "timeout means that nothing ends its wait",
            "look which side is missing: does the log of the other side know that request? if not, abort it",
            "if both sides know it, it hangs in an engine: dump the stacks of all ranks, the odd one out names the place",
        ),
        runbooks=("restart-worker",),
        do_not=(
            DoNot(
                action="shorten-timeout", why="the wait has no timeout, or the wrong one; find which side is missing"
            ),
        ),
        cap=CAP,
    )


def _only_grows(ctx: Context, unit: str, signal: str) -> list[Weighed]:
    least = ctx.ask.highest(unit, signal, 0.0)
    if ctx.view.base is None or not least.above(SOME):
        return []
    before = ctx.ask.highest(unit, signal, 1.0, ctx.view.base)
    if before.value is None or least.value is None or least.value < before.value or _fell(ctx, unit, signal):
        return []
    return [ctx.saw(signal, unit, least, before.value, basis="history", ratio=MODERATE, group="grows")]


def _fell(ctx: Context, unit: str, signal: str) -> bool:
    """Whether fewer wait at the end than did at the most."""
    last, most = ctx.ask.last(unit, signal), ctx.ask.highest(unit, signal)
    return last.value is None or most.value is None or last.value < most.value


def _no_room(ctx: Context) -> list[Weighed]:
    found = []
    for unit in ctx.units(Role.DECODE):
        for signal, limit in (*((s, SOME) for s in _ADMISSION), ("kv_cache_usage", FULL)):
            reading = ctx.ask.level(unit, signal)
            if reading.above(limit):
                found.append(ctx.saw(signal, unit, reading, limit, basis="physics", ratio=STRONG, group="room"))
    return found


def _unseen(ctx: Context) -> tuple[Missing, ...]:
    if any(ctx.ask.level(u, s).known for u in ctx.units(Role.DECODE) for s in _ADMISSION):
        return ()
    why = "whether decode has room for what waits is not told"
    return (Missing(signal=_ADMISSION[0], why=why, fix="scrape the decode workers"),)
