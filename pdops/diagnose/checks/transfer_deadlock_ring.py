"""Both sides hold requests and nothing moves anywhere: they wait for each other."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, WEAK, CheckMeta, Finding, Status, Tier, Weighed, clear, not_known
from pdops.diagnose.preflight import fact, flag
from pdops.model.cluster import Role
from pdops.model.report import DoNot, Missing, Symptom
from pdops.model.series import Window

META = CheckMeta(
    id="transfer/deadlock-ring",
    title="Prefill and decode wait for each other and nothing moves",
    causes=("backpressure-deadlock",),
    needs=(
        "queue_depth",
        "prefill_queue_depth",
        "kv_exports_outstanding",
        "queue_depth_capacity",
        "queue_depth_deferred",
        "decode_prealloc_queue_depth",
        "kv_fetch_done_waiting",
        "transfer_queue_depth",
        "running_requests",
        "prompt_tokens",
        "generated_tokens",
        "kv_transfer_bytes",
    ),
    tier=Tier.PAIR,
    explains=(
        "prefill-undersized",
        "decode-undersized",
        "backpressure-to-prefill",
        "ratio-wrong",
        "decode-kv-exhaustion",
        "kv-strand-prefill",
        "no-timeout-hang",
        "traffic-burst",
        "workload-shift",
    ),
    alert="PDDeadlock",
    panel="overview/progress",
)

STILL_S = 60.0
"""Seconds without one token on either side: above first waves of 40 to 58 s in public incidents, in which nothing seems to move."""
HELD = 0.5
"""Requests that wait, at least and on any moment, for a side to hold some all the time."""
_HOLDS = {
    Role.PREFILL: ("queue_depth", "prefill_queue_depth", "kv_exports_outstanding"),
    Role.DECODE: (
        "queue_depth",
        "queue_depth_capacity",
        "queue_depth_deferred",
        "decode_prealloc_queue_depth",
        "kv_fetch_done_waiting",
    ),
}
_WIRE = "transfer_queue_depth"
_CUT = "whether transfers are under way is not told, and over a cut link both sides wait as well"
_PROGRESS = {Role.PREFILL: "prompt_tokens", Role.DECODE: "generated_tokens"}


def check(ctx: Context) -> Iterator[Finding]:
    """Look for requests that wait on both sides through a minute in which no worker computes a token."""
    window = Window(max(ctx.view.now.start_s, ctx.view.at_s - STILL_S), ctx.view.at_s)
    held = {role: _held(ctx, role, window) for role in _HOLDS}
    if not all(held.values()):
        return
    moved = {u: ctx.ask.increase(u, signal, window) for role, signal in _PROGRESS.items() for u in ctx.units(role)}
    if any(r.above(0) for r in moved.values()):
        yield clear("backpressure-deadlock", "requests wait on both sides and tokens are still computed")
        return
    silent = next((u for u, r in moved.items() if not r.known), None)
    if silent is not None:
        signal = _PROGRESS[ctx.role_of(silent) or Role.DECODE]
        why = "requests wait on both sides and nobody tells whether tokens are computed"
        yield not_known("backpressure-deadlock", signal, why, scope=ctx.scope(silent))
        return
    still = [
        ctx.saw(signal, u, moved[u], None, basis="physics", ratio=STRONG, group="still")
        for role, signal in _PROGRESS.items()
        for u in ctx.units(role)
    ]
    wire = _on_the_wire(ctx, window)
    if wire:
        yield clear("backpressure-deadlock", f"{wire} transfers are under way: it is the link they wait for")
        return
    unseen = next((u for u in ctx.units(Role.DECODE) if not ctx.ask.level(u, _WIRE, window).known), None)
    chunked = _chunked(ctx)
    yield Finding(
        status=Status.FIRED,
        cause="backpressure-deadlock",
        scopes=tuple(ctx.scope(u) for role in _HOLDS for u in ctx.units(role)),
        for_=(*(w for found in held.values() for w in found), *still, *chunked),
        missing=()
        if unseen is None
        else (Missing(signal=_WIRE, why=_CUT, fix="run `pdops canary`", scope=ctx.scope(unseen)),),
        symptoms=(Symptom.GOODPUT,),
        next=(
            "stop admission at the router and see which buffer is full: decode's transfer buffer, prefill's KV, or the router's own",
            "break the ring at one place: drain and restart the decode worker whose buffer is full, then admit slowly",
            "switch chunked prefill off with this connector, or make decode's buffer larger than the longest prompt",
        ),
        runbooks=("backpressure-break",),
        do_not=(
            DoNot(action="scale-out-prefill", why="new workers join the same ring and wait as well"),
            DoNot(
                action="enable-chunked-prefill", why="a prompt in chunks can fill decode's buffer before it is whole"
            ),
            DoNot(action="raise-retries", why="each retry is one more request that waits"),
        ),
    )


def _held(ctx: Context, role: Role, window: Window) -> list[Weighed]:
    found = []
    for unit in ctx.units(role):
        for signal in _HOLDS[role]:
            least = ctx.ask.highest(unit, signal, 0.0, window)
            if least.above(HELD):
                found.append(ctx.saw(signal, unit, least, 0.0, basis="physics", ratio=MODERATE, group=f"{role} waits"))
    return found


def _chunked(ctx: Context) -> tuple[Weighed, ...]:
    """Return that prompts are computed in chunks, of which the first wait in decode's buffer for the last."""
    return tuple(
        ctx.saw("enable_chunked_prefill", w.id, "true", None, basis="config", ratio=WEAK, group="chunked")
        for w in ctx.cluster.of_role(Role.PREFILL)
        if flag(fact(ctx, w.id, "enable_chunked_prefill"))
    )


def _on_the_wire(ctx: Context, window: Window) -> int:
    """Return how many transfers are under way all the time without a byte: a cut link makes both sides wait."""
    n = 0
    for unit in ctx.units(Role.DECODE):
        least = ctx.ask.highest(unit, _WIRE, 0.0, window)
        if least.above(HELD) and ctx.ask.increase(unit, "kv_transfer_bytes", window).value == 0.0:
            n += round(least.value or 0.0)
    return n
