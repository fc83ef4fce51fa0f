"""The autoscaler flaps, is blind, or scales the pool that is not short."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.load import GREW, WAITING, Arrivals, arrivals, size
from pdops.diagnose.replicas import THERE, WANTED, changes, column, missing_throughout
from pdops.model.cluster import POOL_PREFIX, Role
from pdops.model.report import DoNot

META = CheckMeta(
    id="capacity/autoscaler",
    title="The autoscaler does not follow the load",
    causes=("autoscaler-flap", "autoscaler-wrong-signal", "autoscaler-metrics-gap", "prefill-down", "decode-down"),
    needs=(
        "pool_replicas",
        "pool_replicas_wanted",
        "request_success",
        "queue_depth",
        "kv_cache_usage",
        "itl_seconds",
        "queue_depth_capacity",
    ),
    tier=Tier.CAPACITY,
    explains=(
        "ratio-wrong",
        "cold-start",
        "prefill-undersized",
        "decode-undersized",
        "decode-kv-exhaustion",
        "router-imbalance",
        "prefill-slow-worker",
    ),
    alert="PDAutoscalerOff",
    panel="capacity/replicas",
)

STEPS = 3
"""Changes of the wanted size in fifteen minutes that a steady load does not ask for; a public report shows ten in thirteen
minutes without load."""
SWING = 0.5
"""Share of a pool that no steady load needs less of at one moment and again minutes later."""
GONE = 0.1
"""Arrivals below a tenth of what they were are a load that went away."""
SILENT_S = 60.0
"""Seconds without a value after which the wanted size counts as not given; autoscalers decide every 15 to 30 s."""
ROOM = 0.5
"""KV in use below which a pool without a queue has room."""

_DO_NOT = (
    DoNot(action="ratio-rebalance", why="the autoscaler undoes a ratio set by hand; hold it first"),
    DoNot(action="scale-in", why="a size set by hand is changed again by the next decision"),
)


def check(ctx: Context) -> Iterator[Finding]:
    """Set wanted and present sizes beside the load and beside which pool is short."""
    pools = [(role, key) for role in (Role.PREFILL, Role.DECODE) for key in ctx.pools(role)]
    for role, key in pools:
        yield from _flaps(ctx, key)
        yield from _is_blind(ctx, key)
        yield from _never_came(ctx, role, key)
    yield from _wrong_pool(ctx, pools)


def _flaps(ctx: Context, key: str) -> Iterator[Finding]:
    found = changes(ctx, key)
    if found is None:
        return
    signal, steps = found
    if len(steps) < STEPS and not _swings(ctx, key, steps):
        if signal == WANTED:
            yield clear("autoscaler-flap", f"the wanted size changed {len(steps)} times", ctx.scope(key))
        return
    turns = sum(1 for a, b in pairwise(steps) if a * b < 0)
    seen = f"{len(steps)} changes, {turns} of them back"
    for_ = [ctx.saw(signal, key, seen, f"fewer than {STEPS}", basis="history", ratio=MODERATE, group="changes")]
    if turns >= STEPS - 1 or _swings(ctx, key, steps):
        for_.append(ctx.saw(signal, key, turns, None, basis="history", ratio=MODERATE, group="turns"))
    against: list[Weighed] = []
    comes = arrivals(ctx)
    if comes is not None:
        (for_ if comes.steady else against).append(_load(ctx, comes, STRONG if comes.steady else MODERATE))
    steps_to_take = (
        "join the sizes with the arrivals: what did the autoscaler see at each change?",
        "leave the first minutes of a new worker out of its samples, cap the step, and ask for load before scaling out",
    )
    yield _finding(ctx, "autoscaler-flap", key, for_, against, steps_to_take)


def _swings(ctx: Context, key: str, steps: tuple[float, ...]) -> bool:
    """Whether half of the pool, or more, was taken and given back, or the other way round."""
    present = len(ctx.cluster.of_pool(key.removeprefix(POOL_PREFIX)))
    return any(a * b < 0 and min(abs(a), abs(b)) >= SWING * present for a, b in pairwise(steps)) and present > 1


def _is_blind(ctx: Context, key: str) -> Iterator[Finding]:
    wanted = column(ctx, key, WANTED)
    if wanted is None:
        return
    for_: list[Weighed] = []
    age = ctx.view.at_s - float(wanted[0][-1])
    if age > SILENT_S:
        seen = f"none for {age:.0f} s"
        for_.append(ctx.saw(WANTED, key, seen, "a value", basis="history", ratio=STRONG, group="gap"))
    comes = arrivals(ctx)
    sizes = (column(ctx, key, THERE) or wanted)[1]
    held = sizes[-1] > 1 and sizes[-1] >= sizes.max()
    if held and comes is not None and comes.before > 0 and comes.now.below(GONE * comes.before):
        # Sizes are held for some minutes after a load goes, so this alone decides nothing.
        for_.append(_load(ctx, comes, MODERATE))
    if for_:
        steps_to_take = (
            "read the autoscaler's log for NaN, empty queries and skipped decisions; a rate over no requests is 0/0",
            "let it hold its last size without data, never go below its floor, and after a while count no data as no load",
        )
        yield _finding(ctx, "autoscaler-metrics-gap", key, for_, [], steps_to_take)


def _never_came(ctx: Context, role: Role, key: str) -> Iterator[Finding]:
    """Look for workers that were asked for all the time the view knows of, and are not there."""
    short = missing_throughout(ctx, key)
    if short is None or ctx.view.base is None:
        return
    yield Finding(
        status=Status.FIRED,
        cause="prefill-down" if role is Role.PREFILL else "decode-down",
        scopes=(ctx.scope(key),),
        for_=(ctx.saw(THERE, key, short[0], short[1], basis="config", ratio=STRONG, group="asked"),),
        next=("see why the workers asked for do not come: no nodes, no image, no GPU, or they crash while loading",),
        runbooks=("cold-start",),
    )


def _wrong_pool(ctx: Context, pools: list[tuple[Role, str]]) -> Iterator[Finding]:
    short = {key: seen for role, key in pools if (seen := _is_short(ctx, role))}
    grown = {key: seen for _, key in pools if (seen := _grown(ctx, key))}
    for role, key in pools:
        others = sorted(k for k in short if k != key)
        if key in grown and key not in short and others:
            for_ = [*grown[key], *short[others[0]], *_has_room(ctx, role)]
            steps_to_take = (
                "let it judge prefill by queued prompt tokens and decode by KV and running requests, each pool by itself",
                f"add to {', '.join(others)} instead",
            )
            yield _finding(ctx, "autoscaler-wrong-signal", key, for_, [], steps_to_take)
    for key, seen in short.items():
        held = _held(ctx, key)
        if held and not grown:
            steps_to_take = (
                "compare the signal it scales on with the queue: KV usage stays low while prefill lacks compute",
                "scale prefill on queued prompt tokens, decode on KV and running requests",
            )
            yield _finding(ctx, "autoscaler-wrong-signal", key, [*held, *seen], [], steps_to_take)


def _is_short(ctx: Context, role: Role) -> list[Weighed]:
    signal, least = ("queue_depth", WAITING) if role is Role.PREFILL else ("queue_depth_capacity", WAITING / 2)
    found = []
    for unit in ctx.units(role):
        waiting = ctx.ask.level(unit, signal)
        limit = least * size(ctx, unit)
        if waiting.above(limit):
            found.append(ctx.saw(signal, unit, waiting, limit, basis="physics", ratio=MODERATE, group="short"))
    if role is Role.DECODE and not found and ctx.slo.itl_s is not None and ctx.itl().above(ctx.slo.itl_s):
        found.append(
            ctx.saw("itl_seconds", None, ctx.itl(), ctx.slo.itl_s, basis="config", ratio=MODERATE, group="short")
        )
    return found


def _grown(ctx: Context, key: str) -> list[Weighed]:
    for signal in (WANTED, THERE):
        now, before = ctx.ask.last(key, signal), past.level(ctx, key, signal)
        if before is not None and now.above(before + 0.5):
            return [ctx.saw(signal, key, now, before, basis="history", ratio=STRONG, group="grown")]
    return []


def _held(ctx: Context, key: str) -> list[Weighed]:
    """Return that the autoscaler asks for as many as ever, although this pool's queue grew."""
    wanted = column(ctx, key, WANTED)
    depth, before = ctx.ask.level(key, "queue_depth"), past.level(ctx, key, "queue_depth")
    if wanted is None or wanted[1].min() != wanted[1].max() or before is None or not depth.above(GREW * before):
        return []
    size_now = float(wanted[1][-1])
    return [ctx.saw(WANTED, key, size_now, "more than before", basis="history", ratio=MODERATE, group="held")]


def _has_room(ctx: Context, role: Role) -> list[Weighed]:
    levels = {u: ctx.ask.level(u, "kv_cache_usage") for u in ctx.units(role)}
    if not levels or not all(r.below(ROOM) for r in levels.values()):
        return []
    unit, fullest = max(levels.items(), key=lambda item: item[1].value or 0.0)
    return [ctx.saw("kv_cache_usage", unit, fullest, ROOM, basis="physics", ratio=MODERATE, group="room")]


def _load(ctx: Context, comes: Arrivals, ratio: float) -> Weighed:
    signal = f"{comes.signal}.rate"
    return ctx.saw(signal, comes.scope, comes.now, comes.before, basis="history", ratio=ratio, group="load")


def _finding(
    ctx: Context, cause: str, key: str, for_: list[Weighed], against: list[Weighed], steps: tuple[str, ...]
) -> Finding:
    return Finding(
        status=Status.FIRED,
        cause=cause,
        scopes=(ctx.scope(key),),
        for_=tuple(for_),
        against=tuple(against),
        next=steps,
        do_not=_DO_NOT,
    )
