"""Prefill is full of KV while it computes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, not_known
from pdops.model.cluster import CLIENT, Role
from pdops.model.report import DoNot, Layer, Symptom

META = CheckMeta(
    id="prefill/kv-held",
    title="Prefill holds finished KV and computes nothing",
    causes=("kv-strand-prefill", "backpressure-to-prefill"),
    needs=(
        "kv_cache_usage",
        "gpu_util",
        "request_success",
        "queue_depth",
        "queue_depth_capacity",
        "queue_depth_deferred",
    ),
    tier=Tier.STAGE,
    explains=("prefill-undersized",),
    alert="PDPrefillKvHeld",
    panel="prefill/kv-usage",
)

HELD = 0.85
"""KV in use on prefill above which it holds finished KV nobody takes (from public incidents)."""
IDLE_GPU = 0.3
"""GPU busy below this means that nothing is computed that could need the KV."""
WAITS = 1.0
"""Requests that wait on a decode worker above which decode is behind, and KV waits for it."""
_BLIND_CAP = 0.45
"""Most while decode's queues are not told: KV that waits for a busy decode looks the same on prefill."""


def check(ctx: Context) -> Iterator[Finding]:
    """Join a full prefill with an idle GPU or with nothing that finishes, and ask whether decode has room."""
    behind, room = _decode(ctx)
    if behind:
        return
    still = _nothing_finishes(ctx)
    for unit in ctx.units(Role.PREFILL):
        usage = ctx.ask.level(unit, "kv_cache_usage")
        if not usage.above(HELD):
            continue
        idle = _idle(ctx, unit)
        if not idle and not still:
            continue
        scope = ctx.scope(unit)
        if not room:
            why = "whether decode has room for the KV is not told"
            yield not_known("backpressure-to-prefill", "queue_depth", why, "scrape the decode workers", scope)
        yield Finding(
            status=Status.FIRED,
            cause="kv-strand-prefill",
            layer=Layer.TRANSFER,
            scopes=(scope,),
            for_=(
                ctx.saw("kv_cache_usage", unit, usage, HELD, basis="physics", ratio=MODERATE, group="held"),
                *idle,
                *still,
                *room,
            ),
            symptoms=(Symptom.TTFT,),
            next=(
                "look at decode first: does it run, does it wait for room, does it sleep? KV of a decode that is behind is "
                "held by right",
                f"if decode has room, compare the age of the KV that {scope} holds with its lease: what outlives the lease is "
                "lost, and only a restart gives it back",
            ),
            runbooks=("kv-transfer-relief", "restart-worker"),
            do_not=(
                DoNot(action="scale-out-prefill", why="prefill computes nothing; it lacks room, not compute"),
                DoNot(action="enable-chunked-prefill", why="no prompt is being computed that could be cut"),
            ),
            cap=0.97 if room else _BLIND_CAP,
        )


def _decode(ctx: Context) -> tuple[bool, tuple[Weighed, ...]]:
    """Return whether decode is behind, and the evidence that it has room when all of it tells so."""
    found: list[Weighed] = []
    units = ctx.units(Role.DECODE)
    for unit in units:
        told = False
        for signal in ("queue_depth", "queue_depth_capacity", "queue_depth_deferred"):
            waiting = ctx.ask.level(unit, signal)
            if waiting.above(WAITS):
                return True, ()
            told = told or waiting.known
        usage = ctx.ask.level(unit, "kv_cache_usage")
        if usage.above(HELD):
            return True, ()
        if told and usage.known:
            found.append(ctx.saw("kv_cache_usage", unit, usage, HELD, basis="physics", ratio=STRONG, group="room"))
    return False, tuple(found) if units and len(found) == len(units) else ()


def _idle(ctx: Context, unit: str) -> tuple[Weighed, ...]:
    busy = ctx.ask.level(unit, "gpu_util")
    if not busy.below(IDLE_GPU):
        return ()
    return (ctx.saw("gpu_util", unit, busy, IDLE_GPU, basis="physics", ratio=MODERATE, group="idle"),)


def _nothing_finishes(ctx: Context) -> tuple[Weighed, ...]:
    done = ctx.ask.increase(CLIENT, "request_success")
    if done.value != 0.0:
        return ()
    return (ctx.saw("request_success", CLIENT, done, None, basis="physics", ratio=MODERATE, group="idle"),)
