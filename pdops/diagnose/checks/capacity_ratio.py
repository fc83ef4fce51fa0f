"""One pool is at its limit while the other idles, with a clean path between them."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, WEAK, CheckMeta, Finding, Status, Tier, Weighed, clear, not_known
from pdops.diagnose.load import MOVED, WAITING, arrivals, size, waiting
from pdops.model.cluster import CLIENT, Role, pool_key
from pdops.model.frame import Event, EventKind
from pdops.model.report import DoNot, Scope, Symptom, Verdict

META = CheckMeta(
    id="capacity/ratio",
    title="The ratio of prefill to decode does not fit the load",
    causes=("ratio-wrong",),
    needs=(
        "queue_depth",
        "queue_seconds",
        "queue_depth_capacity",
        "running_requests",
        "kv_cache_usage",
        "queue_depth_deferred",
        "kv_transfer_expired",
        "kv_transfer_failures",
        "request_success",
        "pool_replicas",
    ),
    tier=Tier.CAPACITY,
    explains=(
        "prefill-undersized",
        "decode-undersized",
        "batch-cap-too-low",
        "decode-kv-exhaustion",
        "router-imbalance",
        "cold-start",
    ),
    alert="PDPoolRatio",
    panel="capacity/pool-balance",
)

IDLE = 0.3
"""Less than this share of a pool in use is an oversized pool (triage matrix, fourth symptom)."""
HEADROOM = 0.3
"""Share of decode's KV to keep free at its 99th percentile (buffer of the capacity rules)."""
HELD = 0.85
"""KV in use on prefill above which it holds finished KV that nobody takes (from public incidents)."""
MOVED_S = 900.0
"""A change of size this recent is what the load meets now: all that the history holds."""
FELL = 0.8
"""Finished requests below this share of what they were are a falling goodput."""


def check(ctx: Context) -> Iterator[Finding]:
    """Look for a saturated pool beside an idle one; whatever blocks the path between them comes first."""
    prefill_short, decode_short = _prefill_short(ctx), _decode_short(ctx)
    prefill_idle, decode_idle = _prefill_idle(ctx), _decode_idle(ctx)
    if not prefill_short and not decode_short:
        return
    to_decode, to_prefill = _moved(ctx, Role.DECODE), _moved(ctx, Role.PREFILL)
    blocked = _blocked(ctx) or ([] if to_decode or to_prefill else _deferred(ctx))
    if blocked:
        yield clear("ratio-wrong", f"{blocked[0].evidence.signal} says that the path between the pools is not clean")
        return
    if prefill_short and (decode_idle or to_decode):
        yield _finding(
            ctx,
            (*prefill_short, *decode_idle, *to_decode),
            short=Role.PREFILL,
            next_step="turn decode workers into prefill workers, or add prefill, until prefill's queue is gone",
            do_not=(
                DoNot(action="scale-out-decode", why="decode idles; more of it waits for the same prefill"),
                DoNot(action="scale-in-prefill", why="prefill is the pool that is short"),
            ),
        )
    elif decode_short and (prefill_idle or to_prefill):
        yield _finding(
            ctx,
            (*decode_short, *prefill_idle, *to_prefill),
            short=Role.DECODE,
            next_step="turn prefill workers into decode workers, or add decode, until nothing waits for decode capacity",
            do_not=(
                DoNot(action="scale-out-prefill", why="prefill idles; more of it only fills decode faster"),
                DoNot(action="evict-kv", why="evicted requests are computed again; decode lacks room, not order"),
            ),
        )
    elif prefill_short and not _knows(ctx, Role.DECODE, "kv_cache_usage"):
        yield not_known("ratio-wrong", "kv_cache_usage", "prefill is short, and nobody tells whether decode idles")
    elif decode_short and not _knows(ctx, Role.PREFILL, "running_requests"):
        yield not_known("ratio-wrong", "running_requests", "decode is short, and nobody tells whether prefill idles")


def _finding(
    ctx: Context, for_: tuple[Weighed, ...], *, short: Role, next_step: str, do_not: tuple[DoNot, ...]
) -> Finding:
    falls = _goodput_falls(ctx)
    comes = arrivals(ctx)
    against = []
    if comes is not None and comes.grew:
        against.append(
            ctx.saw(
                f"{comes.signal}.rate",
                comes.scope,
                comes.now,
                comes.before,
                basis="history",
                ratio=MODERATE,
                group="arrivals",
            )
        )
    return Finding(
        status=Status.FIRED,
        cause="ratio-wrong",
        scopes=_where(ctx, short),
        for_=(*for_, *falls),
        against=tuple(against),
        verdict=Verdict.OVERLOAD,
        symptoms=(Symptom.GOODPUT,) if falls else (),
        next=(
            next_step,
            f"measure goodput at a few ratios around the present one before changing it; {short} is the short side now",
        ),
        runbooks=("ratio-rebalance",),
        do_not=do_not,
    )


def _where(ctx: Context, short: Role) -> tuple[Scope, ...]:
    """Return the workers that left the short pool where nobody joined the other, else both pools."""
    other = Role.PREFILL if short is Role.DECODE else Role.DECODE
    gone = _left(ctx, other)
    # Of whom nobody tells the role, it may have been the other pool.
    left = sorted({e.worker for e in gone if e.worker and _role(ctx, e) is short})
    if left and len(left) == len({e.worker for e in gone}) and not _joined(ctx, other):
        return tuple(Scope("worker", w) for w in left)
    return tuple(ctx.scope(p) for p in (*ctx.pools(Role.PREFILL), *ctx.pools(Role.DECODE)))


def _joined(ctx: Context, to: Role) -> list[Event]:
    return [e for e in ctx.events((EventKind.SCALE_OUT,), MOVED_S) if e.worker and ctx.role_of(e.worker) is to]


def _left(ctx: Context, to: Role) -> list[Event]:
    return [e for e in ctx.events((EventKind.SCALE_IN,), MOVED_S) if e.worker and _role(ctx, e) is not to]


def _moved(ctx: Context, to: Role) -> tuple[Weighed, ...]:
    """Return that workers left and others joined this pool a short while ago: the pool that is short now gave them."""
    joined, left = _joined(ctx, to), _left(ctx, to)
    if not left:
        return ()
    text = f"{len(left)} workers left, {len(joined)} joined {to}"
    return (ctx.saw("pool_replicas", None, text, None, basis="log", ratio=STRONG, group=MOVED),)


def _role(ctx: Context, event: Event) -> Role | None:
    """Return the role of an event's worker; one that left is no longer in the cluster, but its pool may be."""
    for key in (event.worker, event.pool and pool_key(event.pool)):
        if key and (role := ctx.role_of(key)) is not None:
            return role
    return None


def _prefill_short(ctx: Context) -> tuple[Weighed, ...]:
    found = []
    for unit in ctx.units(Role.PREFILL):
        signal, depth = waiting(ctx, unit)
        limit = WAITING * size(ctx, unit)
        if depth.above(limit):
            found.append(ctx.saw(signal, unit, depth, limit, basis="physics", ratio=STRONG, group="short"))
    return tuple(found)


def _decode_short(ctx: Context) -> tuple[Weighed, ...]:
    found = []
    for unit in ctx.units(Role.DECODE):
        behind = ctx.ask.level(unit, "queue_depth_capacity")
        limit = WAITING / 2 * size(ctx, unit)
        if behind.above(limit):
            found.append(
                ctx.saw("queue_depth_capacity", unit, behind, limit, basis="physics", ratio=STRONG, group="short")
            )
        usage = ctx.ask.highest(unit, "kv_cache_usage", 0.99)
        if found and usage.above(1 - HEADROOM):
            found.append(
                ctx.saw("kv_cache_usage", unit, usage, 1 - HEADROOM, basis="physics", ratio=WEAK, group="headroom")
            )
    return tuple(found)


def _prefill_idle(ctx: Context) -> tuple[Weighed, ...]:
    """Return that prefill idles: on average less than `IDLE` requests run per worker, and none waits."""
    units = ctx.units(Role.PREFILL)
    busy = {u: ctx.ask.level(u, "running_requests") for u in units}
    queued = [ctx.ask.level(u, "queue_depth") for u in units]
    if not units or not all(r.below(IDLE * size(ctx, u)) for u, r in busy.items()):
        return ()
    if not all(q.below(0.5) for q in queued):
        return ()
    return tuple(
        ctx.saw("running_requests", u, r, IDLE, basis="physics", ratio=MODERATE, group="idle") for u, r in busy.items()
    )


def _decode_idle(ctx: Context) -> tuple[Weighed, ...]:
    """Return that decode idles: its KV is mostly free even at its fullest, and nothing waits for capacity."""
    units = ctx.units(Role.DECODE)
    usage = {u: ctx.ask.highest(u, "kv_cache_usage", 0.99) for u in units}
    queued = [ctx.ask.level(u, "queue_depth_capacity") for u in units]
    if not units or not all(r.below(IDLE) for r in usage.values()) or any(q.above(0.5) for q in queued):
        return ()
    if ctx.slo.itl_s is not None and ctx.itl().above(ctx.slo.itl_s):
        return ()
    return tuple(
        ctx.saw("kv_cache_usage", u, r, IDLE, basis="physics", ratio=MODERATE, group="idle") for u, r in usage.items()
    )


def _blocked(ctx: Context) -> list[Weighed]:
    """Return what keeps KV from passing from prefill to decode; then neither pool's size is at fault."""
    found = []
    for unit in ctx.units(Role.PREFILL):
        usage = ctx.ask.level(unit, "kv_cache_usage")
        if usage.above(HELD):
            found.append(ctx.saw("kv_cache_usage", unit, usage, HELD, basis="physics", ratio=STRONG, group="path"))
        expired = ctx.ask.increase(unit, "kv_transfer_expired")
        if expired.above(0):
            found.append(
                ctx.saw("kv_transfer_expired", unit, expired, 0.0, basis="physics", ratio=STRONG, group="path")
            )
    for unit in ctx.units(Role.DECODE):
        failed = ctx.ask.increase(unit, "kv_transfer_failures")
        if failed.above(0):
            found.append(
                ctx.saw("kv_transfer_failures", unit, failed, 0.0, basis="physics", ratio=STRONG, group="path")
            )
    return found


def _deferred(ctx: Context) -> list[Weighed]:
    """Return that requests wait on decode for KV; where workers were moved they do so for want of them as well."""
    return [
        ctx.saw("queue_depth_deferred", unit, deferred, WAITING, basis="physics", ratio=STRONG, group="path")
        for unit in ctx.units(Role.DECODE)
        if (deferred := ctx.ask.level(unit, "queue_depth_deferred")).above(WAITING * size(ctx, unit))
    ]


def _goodput_falls(ctx: Context) -> tuple[Weighed, ...]:
    now, before = ctx.ask.rate(CLIENT, "request_success"), past.rate(ctx, CLIENT, "request_success")
    if not before or not now.below(FELL * before):
        return ()
    return (ctx.saw("request_success.rate", CLIENT, now, before, basis="history", ratio=WEAK, group="goodput"),)


def _knows(ctx: Context, role: Role, signal: str) -> bool:
    return any(ctx.ask.level(u, signal).known for u in ctx.units(role))
