"""Decode is behind, and prefill fills up with KV it has finished."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed
from pdops.diagnose.load import WAITING, size
from pdops.model.cluster import Role
from pdops.model.report import DoNot

META = CheckMeta(
    id="decode/backpressure",
    title="Decode is behind and prefill is full of KV it has finished",
    causes=("backpressure-to-prefill",),
    needs=(
        "kv_cache_usage",
        "queue_depth",
        "kv_exports_outstanding",
        "queue_depth_capacity",
        "queue_depth_deferred",
        "decode_prealloc_queue_depth",
        "prompt_length",
        "kv_transfer_expired",
    ),
    tier=Tier.STAGE,
    explains=("prefill-kv-oom", "prefill-undersized", "engine-crash"),
    alert="PDDecodeBackpressure",
    panel="prefill/kv-usage",
)

HELD = 0.85
"""KV in use on prefill above which it is finished KV, not computing, that fills it (from public incidents)."""
BEHIND = 1.0
"""Requests per decode worker that wait for capacity or for KV above which decode does not take what prefill has ready."""
GREW = 1.5
_DECODE = ("queue_depth", "queue_depth_capacity", "queue_depth_deferred", "decode_prealloc_queue_depth")
_DO_NOT = (
    DoNot(action="scale-out-prefill", why="prefill is full of finished KV; more of it waits for the same decode"),
    DoNot(action="raise-retries", why="each retry leaves another copy of the same KV on prefill"),
)


def check(ctx: Context) -> Iterator[Finding]:
    """Look for full prefill workers without a queue of prompts, and ask decode why it does not take the KV."""
    full = {}
    for unit in ctx.units(Role.PREFILL):
        usage, depth = ctx.ask.level(unit, "kv_cache_usage"), ctx.ask.level(unit, "queue_depth")
        if usage.above(HELD) and depth.below(WAITING * size(ctx, unit)):
            full[unit] = (
                ctx.saw("kv_cache_usage", unit, usage, HELD, basis="physics", ratio=MODERATE, group="held"),
                ctx.saw("queue_depth", unit, depth, WAITING, basis="physics", ratio=MODERATE, group="no queue"),
            )
    if not full or any(ctx.ask.increase(u, "kv_transfer_expired").above(0) for u in full):
        # Expired leases say the same and who left the KV behind: transfer/lease-expiry.
        return
    held = [w for pair in full.values() for w in pair] + _outstanding(ctx, full)
    scopes = tuple(ctx.scope(u) for u in full)
    behind = _behind(ctx)
    if not behind:
        return
    yield Finding(
        status=Status.FIRED,
        cause="backpressure-to-prefill",
        scopes=scopes,
        for_=(*held, *behind),
        against=_longer(ctx),
        next=(
            "look at decode first: its capacity and deferred queues say why it does not take what prefill has ready",
            "bound what prefill may hand over before decode has taken it (admission at the router), until prefill empties",
        ),
        runbooks=("backpressure-break", "itl-decode-relief"),
        do_not=_DO_NOT,
    )


def _outstanding(ctx: Context, units: dict[str, tuple[Weighed, Weighed]]) -> list[Weighed]:
    found = []
    for unit in units:
        now, before = ctx.ask.level(unit, "kv_exports_outstanding"), past.level(ctx, unit, "kv_exports_outstanding")
        if before is not None and now.above(max(BEHIND, GREW * before)):
            found.append(
                ctx.saw("kv_exports_outstanding", unit, now, before, basis="history", ratio=STRONG, group="finished")
            )
    return found


def _behind(ctx: Context) -> tuple[Weighed, ...]:
    found = []
    for unit in ctx.units(Role.DECODE):
        for signal in _DECODE:
            waiting, before = ctx.ask.level(unit, signal), past.level(ctx, unit, signal)
            if waiting.above(max(BEHIND * size(ctx, unit), GREW * (before or 0.0))):
                found.append(ctx.saw(signal, unit, waiting, before, basis="history", ratio=MODERATE, group="decode"))
    return tuple(found)


def _longer(ctx: Context) -> tuple[Weighed, ...]:
    """Return that prompts grew: then KV in use may be prompts being computed."""
    for unit in ctx.units(Role.PREFILL):
        now, before = ctx.ask.mean(unit, "prompt_length"), past.mean(ctx, unit, "prompt_length")
        if before and now.above(GREW * before):
            return (ctx.saw("prompt_length.mean", unit, now, before, basis="history", ratio=MODERATE, group="length"),)
    return ()
