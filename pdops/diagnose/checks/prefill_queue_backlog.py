"""Requests queue for prefill."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.limits import DEEP
from pdops.diagnose.load import longer, more, waiting
from pdops.model.cluster import Role
from pdops.model.report import DoNot, Missing, Symptom, Verdict

META = CheckMeta(
    id="prefill/queue-backlog",
    title="Requests queue for prefill",
    causes=("prefill-undersized", "backpressure-to-prefill", "traffic-burst", "workload-shift"),
    needs=(
        "queue_depth",
        "queue_seconds",
        "kv_cache_usage",
        "queue_depth_capacity",
        "queue_depth_deferred",
        "request_success",
        "prompt_tokens",
        "prompt_length",
    ),
    tier=Tier.STAGE,
    alert="PDPrefillQueueing",
    panel="prefill/queue",
)

GREW = 1.5
HELD = 0.85
"""KV in use on prefill above which it is finished KV, not computing, that holds a queue up (from public incidents)."""
UNSEEN_CAP = 0.45
"""Most that a queue carries while what tells its reasons apart is not seen: KV in use on prefill, decode's own queues."""
BEHIND = 1.0
"""Requests per decode worker that wait for capacity or for KV above which decode does not take what prefill has ready."""


def check(ctx: Context) -> Iterator[Finding]:
    """Tell real prefill saturation from KV that decode does not take, and from a burst or longer prompts."""
    told = {u: waiting(ctx, u) for u in ctx.units(Role.PREFILL)}
    depths = {u: depth for u, (_, depth) in told.items()}
    deep = {u: r for u, r in depths.items() if r.above(DEEP) and _grew(ctx, u, r.value or 0.0)}
    if not deep:
        known = [r.value for r in depths.values() if r.value is not None]
        if known and len(known) == len(depths):
            yield clear("prefill-undersized", f"at most {max(known):.1f} requests wait per prefill worker")
        return
    for_ = [
        ctx.saw(
            told[u][0],
            u,
            r,
            _before(ctx, u) if _before(ctx, u) is not None else DEEP,
            basis="physics" if _before(ctx, u) is None else "history",
            ratio=STRONG,
            group="queue",
        )
        for u, r in deep.items()
    ]
    held, unseen = _held(ctx), _unseen(ctx)
    scopes = tuple(ctx.scope(u) for u in deep)
    comes, lengths = more(ctx), longer(ctx)
    yield Finding(
        status=Status.FIRED,
        cause="prefill-undersized",
        scopes=scopes,
        for_=tuple(for_),
        against=(*held, *comes, *lengths),
        missing=unseen,
        verdict=Verdict.OVERLOAD,
        symptoms=(Symptom.TTFT,),
        next=(
            "compare queued prompt tokens with prefill's tokens per second",
            "add prefill workers if decode has room for their KV",
        ),
        runbooks=("ttft-prefill-relief", "scale-out-prefill"),
        do_not=(
            DoNot(
                action="enable-chunked-prefill",
                why="with some KV connectors chunked prefill can deadlock; test it first",
            ),
        ),
        cap=UNSEEN_CAP if unseen else 0.97,
    )
    if held:
        yield Finding(
            status=Status.FIRED,
            cause="backpressure-to-prefill",
            scopes=scopes,
            for_=(*for_, *held),
            symptoms=(Symptom.TTFT,),
            next=("look at decode's deferred and capacity queues: it does not take the KV prefill has ready",),
            runbooks=("backpressure-break", "itl-decode-relief"),
            do_not=(
                DoNot(
                    action="scale-out-prefill",
                    why="prefill is full of finished KV; more of it waits for the same decode",
                ),
            ),
            cap=0.97 if any(w.group == "decode" for w in held) else UNSEEN_CAP,
        )
    # Clients do not choose workers.
    everywhere = tuple(ctx.scope(p) for p in ctx.pools(Role.PREFILL))
    if comes:
        yield Finding(
            status=Status.FIRED,
            cause="traffic-burst",
            scopes=everywhere,
            for_=(*for_, *comes),
            # Longer prompts make a queue of what came before as well.
            against=lengths,
            verdict=Verdict.OVERLOAD,
            symptoms=(Symptom.TTFT,),
            next=("see who sends more, and whether it lasts longer than a scale-out takes",),
            runbooks=("ttft-prefill-relief", "scale-out-prefill"),
        )
    if lengths:
        yield Finding(
            status=Status.FIRED,
            cause="workload-shift",
            scopes=everywhere,
            for_=(*for_, *lengths),
            verdict=Verdict.OVERLOAD,
            symptoms=(Symptom.TTFT,),
            next=("see which client sends longer prompts; size prefill by tokens, not by requests",),
            runbooks=("ttft-prefill-relief", "scale-out-prefill"),
        )


def _unseen(ctx: Context) -> tuple[Missing, ...]:
    """Return that KV in use on prefill is not told: then finished KV may hold the queue up as well as compute."""
    if any(ctx.ask.level(u, "kv_cache_usage").known for u in ctx.units(Role.PREFILL)):
        return ()
    why = "whether prefill computes or holds finished KV is not told"
    return (Missing(signal="kv_cache_usage", why=why, fix="scrape the prefill workers"),)


def _before(ctx: Context, unit: str) -> float | None:
    return ctx.before(lambda s, w: waiting(ctx, s, w)[1], unit)


def _grew(ctx: Context, unit: str, now: float) -> bool:
    before = _before(ctx, unit)
    return before is None or now > GREW * before


def _held(ctx: Context) -> tuple[Weighed, ...]:
    found = []
    for unit in ctx.units(Role.PREFILL):
        usage = ctx.ask.level(unit, "kv_cache_usage")
        if usage.above(HELD):
            found.append(ctx.saw("kv_cache_usage", unit, usage, HELD, basis="physics", ratio=MODERATE, group="held"))
    for unit in ctx.units(Role.DECODE) if found else ():
        signal, behind = waiting(ctx, unit)
        before = _before(ctx, unit)
        if behind.above(max(BEHIND, GREW * (before or 0.0))):
            found.append(ctx.saw(signal, unit, behind, before, basis="history", ratio=MODERATE, group="decode"))
        for signal in ("queue_depth_capacity", "queue_depth_deferred"):
            behind = ctx.ask.level(unit, signal)
            if behind.above(BEHIND):
                found.append(ctx.saw(signal, unit, behind, BEHIND, basis="physics", ratio=MODERATE, group="decode"))
    return tuple(found)
