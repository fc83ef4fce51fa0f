"""Prefill's KV pool holds fewer prompts than it did."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.cache import LOCAL, shares
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.load import GREW, WAITING, average, prompt, size
from pdops.model.cluster import Role
from pdops.model.report import DoNot, Symptom
from pdops.model.series import Window

META = CheckMeta(
    id="prefill/kv-short",
    title="Prefill's KV pool holds fewer prompts than it did",
    causes=("prefill-kv-oom",),
    needs=(
        "kv_cache_usage",
        "running_requests",
        "queue_depth",
        "queue_depth_deferred",
        "kv_exports_outstanding",
        "kv_transfer_expired",
        "prompt_length",
        "prompt_tokens",
        "prefill_seconds",
        "queue_seconds",
        "prefix_cache_hits",
        "prefix_cache_queries",
    ),
    tier=Tier.STAGE,
    # With less room prefixes are evicted before they are used again, and are computed again.
    explains=(
        "prefix-cache-collapse",
        "router-index-loss",
        "prefill-undersized",
        "prefill-slow-worker",
        "traffic-burst",
        "ratio-wrong",
    ),
    no_alert="it sets KV in use beside the prompts that use it; the wait it causes is alerted as PDPrefillQueueing",
)

SHRUNK = 2.0
"""KV share per token in flight over that of before from which the pool itself is smaller: half the blocks or fewer. Prompts
that share a prefix, and blocks filled in part, move it by less."""
_LEAST = 10
"""Samples of a gauge in a window below which its mean is chance."""


def check(ctx: Context) -> Iterator[Finding]:
    """Divide KV in use on prefill by the tokens of the prompts that use it, now and before."""
    queued = {
        u: r for u in ctx.units(Role.PREFILL) if (r := ctx.ask.level(u, "queue_depth")).above(WAITING * size(ctx, u))
    }
    if not queued or ctx.view.base is None or _behind(ctx):
        return
    told: dict[str, tuple[float, float]] = {}
    for unit in queued:
        now, before = (_per_token(ctx, unit, w) for w in (ctx.view.now, ctx.view.base))
        if now is not None and before:
            told[unit] = now, before
    shrunk = {u: v for u, v in told.items() if v[0] >= SHRUNK * v[1] and _computes_more(ctx, u)}
    if not shrunk:
        if told:
            most = max(told, key=lambda u: told[u][0] / told[u][1])
            because = f"KV in use per token in flight is {told[most][0] / told[most][1]:.2f} times what it was"
            yield clear("prefill-kv-oom", because, ctx.scope(most))
        return
    yield Finding(
        status=Status.FIRED,
        cause="prefill-kv-oom",
        scopes=tuple(ctx.scope(u) for u in shrunk),
        for_=(*_seen(ctx, shrunk), *_queues(ctx, shrunk), *_hits(ctx)),
        symptoms=(Symptom.TTFT,),
        next=(
            "compare num_gpu_blocks of the prefill workers, in their start-up logs, with what it was",
            "see what took GPU memory or blocks: gpu_memory_utilization, another process, a leak, a longer max_model_len",
        ),
        runbooks=("ttft-prefill-relief",),
        do_not=(DoNot(action="evict-kv", why="prefixes are evicted for lack of room already, and computed again"),),
    )


def _per_token(ctx: Context, unit: str, window: Window) -> float | None:
    """Return the share of KV in use (0-1) per token of prompts that are computed or wait to be read by decode."""
    usage, running = (average(ctx, unit, s, window) for s in ("kv_cache_usage", "running_requests"))
    length, held = prompt(ctx, unit, window).value, _held(ctx, unit, window)
    if usage is None or running is None or not length or min(usage.n, running.n) < (1 if ctx.view.relative else _LEAST):
        return None
    if held is None:
        return None
    prompts = (running.value or 0.0) + held
    return (usage.value or 0.0) / (prompts * length) if prompts > 0 else None


def _held(ctx: Context, unit: str, window: Window) -> float | None:
    """Return how many finished prompts wait to be read: as counted, else what end per second times how long decode takes.

    None where neither is told: what nobody counts may fill the pool.
    """
    counted = average(ctx, unit, "kv_exports_outstanding", window)
    if counted is not None and counted.value is not None:
        return counted.value
    rate = ctx.ask.rate(unit, "prefill_seconds", window).value
    waits = [ctx.ask.mean(p, "queue_seconds", window).value for p in ctx.pools(Role.DECODE)]
    known = [w for w in waits if w is not None]
    return rate * max(known) if rate is not None and known else None


def _computes_more(ctx: Context, unit: str) -> bool:
    """Whether more prompts are being computed than before: they fill the pool, and not those that decode does not take."""
    now, before = (average(ctx, unit, "running_requests", w) for w in (ctx.view.now, ctx.view.base) if w is not None)
    return now is not None and before is not None and (now.value or 0.0) > GREW * (before.value or 0.0)


def _behind(ctx: Context) -> bool:
    """Whether decode does not take what prefill has ready: then it is finished KV that fills prefill."""
    for unit in ctx.units(Role.DECODE):
        if any(
            ctx.ask.level(unit, s).above(WAITING * size(ctx, unit)) for s in ("queue_depth", "queue_depth_deferred")
        ):
            return True
    return any(ctx.ask.increase(u, "kv_transfer_expired").above(0) for u in ctx.units(Role.PREFILL))


def _seen(ctx: Context, shrunk: dict[str, tuple[float, float]]) -> Iterator[Weighed]:
    for unit, (now, before) in shrunk.items():
        signal = "kv_cache_usage per prompt_tokens"
        yield ctx.saw(signal, unit, now, before, basis="history", ratio=STRONG, group="room")


def _queues(ctx: Context, units: dict[str, tuple[float, float]]) -> Iterator[Weighed]:
    for unit in units:
        depth, limit = ctx.ask.level(unit, "queue_depth"), WAITING * size(ctx, unit)
        yield ctx.saw("queue_depth", unit, depth, limit, basis="physics", ratio=MODERATE, group="queue")


def _hits(ctx: Context) -> Iterator[Weighed]:
    for share in shares(ctx, LOCAL):
        if share.fell:
            yield ctx.saw(
                share.signal, share.unit, share.now, share.before, basis="history", ratio=MODERATE, group="hits"
            )
