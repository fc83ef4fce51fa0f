"""Some workers of a pool get far more than others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pdops.diagnose.cache import LOCAL, shares
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear, not_known
from pdops.diagnose.load import WAITING, Split, holding, members, traffic
from pdops.diagnose.symptoms import SKEW
from pdops.model.cluster import Role, pool_key
from pdops.model.frame import EventKind
from pdops.model.report import DoNot, Symptom
from pdops.model.series import Floats, Series, Window
from pdops.stats.robust import MIN_PEERS, median

META = CheckMeta(
    id="router/imbalance",
    title="Load is uneven between the workers of a pool",
    causes=("router-imbalance", "prefix-hotspot"),
    needs=(
        "worker_selection",
        "request_success",
        "running_requests",
        "queue_depth",
        "queue_depth_capacity",
        "prefix_cache_hits",
        "process_start_seconds",
    ),
    tier=Tier.STAGE,
    explains=(
        "prefill-undersized",
        "decode-undersized",
        "prefill-slow-worker",
        "decode-slow-worker",
        "decode-kv-exhaustion",
        "backpressure-to-prefill",
        "traffic-burst",
        "ratio-wrong",
    ),
    alert="PDLoadSkew",
    panel="routing/skew",
)

EVEN = 1.3
"""Greatest over mean traffic below which the router shares out evenly."""
HOTTER = 0.2
"""Prefix hit rate above that of the other workers by which one prefix, and not chance, draws the requests."""
BUSY = 2.0
"""Mean running requests per worker below which one request more or less makes the skew."""
HARDLY = 0.25
"""Traffic over the mean below which a worker is left out rather than chosen less."""
EMPTY = 0.5
"""Requests a worker holds on the mean below which it has nothing to do."""
WORSE = 1.5
"""Unevenness over that of before by which routing changed: small pools are never quite even."""
FEWER = 1.2
"""Times as many wait at a worker as at the hottest when it is no longer chosen because it is full."""
_MOMENTS = 5
"""Samples in which all workers told what they hold, for a median over time."""
UNSEEN_CAP = 0.45
"""Most that uneven load carries while nobody tells the traffic: a slow worker piles up the same way."""


def check(ctx: Context) -> Iterator[Finding]:
    """Set traffic, running and waiting requests of each pool's workers side by side."""
    for role in (Role.PREFILL, Role.DECODE):
        for workers in members(ctx, role):
            yield from _pool(ctx, role, workers)


def _pool(ctx: Context, role: Role, workers: tuple[str, ...]) -> Iterator[Finding]:
    gets = traffic(ctx, workers)
    runs = holding(ctx, workers, "running_requests", BUSY)
    waits = holding(ctx, workers, "queue_depth", WAITING / len(workers))
    seen = [s for s in (gets, runs) if s is not None and s.skew >= SKEW]
    if waits is not None and waits.skew >= SKEW and waits.by_worker[waits.hottest] > WAITING and waits.idle:
        seen.append(waits)
    if gets is None or gets not in seen:
        herd = _left_out(ctx, workers, gets) or _herds(ctx, workers)
        if herd:
            yield _herding(ctx, workers, herd, _more(role))
            return
    seen = [s for s in seen if not _flees(ctx, s)]
    if not seen:
        if gets is not None and gets.skew < EVEN:
            yield clear("router-imbalance", f"the busiest {role} worker gets {gets.skew:.2f} of the mean")
        return
    hot = seen[0].hottest
    for_ = tuple(_weigh(ctx, s, STRONG if s is gets else MODERATE) for s in seen)
    against = _reasons(ctx, gets, seen[0])
    drawn = _drawn(ctx, workers, hot)
    told = gets is not None
    scopes = (ctx.scope(hot),)
    if drawn:
        yield Finding(
            status=Status.FIRED,
            cause="prefix-hotspot",
            scopes=scopes,
            for_=(*for_, *drawn),
            against=against,
            symptoms=(Symptom.SKEW,),
            next=(f"find the prefix that draws requests to {hot}, and let the router copy it to a second worker",),
            runbooks=("routing-rebalance",),
            do_not=(
                DoNot(action="disable-prefix-cache", why="every worker would then compute the popular prefix again"),
                _more(role),
            ),
            cap=0.97 if told else UNSEEN_CAP,
        )
    yield Finding(
        status=Status.FIRED,
        cause="router-imbalance",
        scopes=scopes,
        for_=for_,
        against=(*against, *drawn),
        symptoms=(Symptom.SKEW,),
        next=(
            "look at the router's policy: does it count what it has in flight, or only what it last scraped?",
            f"compare {hot} with {', '.join(seen[0].idle[:3]) or 'its peers'}: same version, zone and weight?",
        ),
        runbooks=("routing-rebalance",),
        do_not=(_more(role),),
        cap=0.97 if told else UNSEEN_CAP,
    )
    if not told:
        why = f"nobody tells how many requests each {role} worker gets"
        yield not_known("router-imbalance", "worker_selection", why, "add the router with --target router=URL")


def _herding(ctx: Context, workers: tuple[str, ...], for_: tuple[Weighed, ...], do_not: DoNot) -> Finding:
    pool = ctx.cluster.get(workers[0])
    return Finding(
        status=Status.FIRED,
        cause="router-imbalance",
        scopes=(ctx.scope(pool_key(pool.pool)),) if pool is not None else (),
        for_=for_,
        symptoms=(Symptom.SKEW,),
        next=(
            "look how old the loads are that the router decides on: all requests go to whom it last saw idle",
            "let the router count what it has in flight itself, or choose between two at random",
        ),
        runbooks=("routing-rebalance",),
        do_not=(do_not,),
    )


def _herds(ctx: Context, workers: tuple[str, ...]) -> tuple[Weighed, ...]:
    """Return that at each moment one worker holds far more than the rest, though over time all get the same.

    Of two or three workers one often holds all that there is, by chance.
    """
    if len(workers) < MIN_PEERS or _regrouped(ctx, workers):
        return ()
    now = _moments(ctx, workers, ctx.view.now)
    if now is None or now < SKEW:
        return ()
    before = _moments(ctx, workers, ctx.view.base)
    if before is None or now < WORSE * before:
        return ()
    seen = f"at each moment the fullest of {len(workers)} holds {now:.1f} times the mean"
    return (
        ctx.saw("running_requests", None, seen, f"{before:.1f}", basis="history", ratio=STRONG, group="herd"),
        *_waits(ctx, workers),
    )


def _regrouped(ctx: Context, workers: tuple[str, ...]) -> bool:
    """Whether workers joined or left this pool since what is compared: it was never so even, or uneven, as it is now."""
    pool = ctx.cluster.get(workers[0])
    moved = ctx.events((EventKind.SCALE_IN, EventKind.SCALE_OUT), ctx.view.at_s - ctx.view.start_s)
    return pool is not None and any((e.pool or _pool_of(ctx, e.worker)) in (None, pool.pool) for e in moved)


def _pool_of(ctx: Context, worker: str | None) -> str | None:
    known = ctx.cluster.get(worker) if worker else None
    return known.pool if known is not None else None


def _moments(ctx: Context, workers: tuple[str, ...], window: Window | None) -> float | None:
    """Return the median over time of the greatest over the mean of what workers hold, running and waiting."""
    if window is None:
        return None
    told = [_held(ctx, worker, window) for worker in workers]
    times, place = np.unique(np.concatenate([t for t, _ in told]), return_inverse=True)
    loads = np.concatenate([v for _, v in told])
    n, total, most = np.bincount(place, minlength=len(times)), np.bincount(place, weights=loads), np.zeros(len(times))
    np.maximum.at(most, place, loads)
    whole = (n == len(workers)) & (total >= BUSY * len(workers))
    ratios = most[whole] * len(workers) / total[whole]
    return float(np.median(ratios)) if len(ratios) >= _MOMENTS else None


def _held(ctx: Context, worker: str, window: Window) -> tuple[Floats, Floats]:
    """Return the moments of a window at which a worker told what it held, and how much that was."""
    found = [
        (series.t[inside], series.v[inside])
        for signal in ("running_requests", "queue_depth")
        for _, series in ctx.ask.parts(worker, signal)
        if isinstance(series, Series)
        for inside in [(series.t >= window.start_s) & (series.t <= window.end_s)]
    ]
    if not found:
        return np.zeros(0), np.zeros(0)
    times, place = np.unique(np.concatenate([t for t, _ in found]), return_inverse=True)
    held = np.zeros(len(times))
    np.add.at(held, place, np.concatenate([v for _, v in found]))
    return times, held


def _left_out(ctx: Context, workers: tuple[str, ...], gets: Split | None) -> tuple[Weighed, ...]:
    """Return workers that answer and get hardly anything while requests wait at others."""
    waits = _waits(ctx, workers)
    if gets is None or not waits:
        return ()
    planned = {
        e.worker for e in ctx.events((EventKind.SCALE_IN, EventKind.ROLLOUT, EventKind.RESTART, EventKind.SCALE_OUT))
    }
    idle = [w for w in gets.idle if gets.by_worker[w] < HARDLY * gets.mean and w not in planned and _empty(ctx, w)]
    signal = f"{gets.signal}.rate"
    return (
        *(ctx.saw(signal, w, gets.by_worker[w], gets.mean, basis="peer", ratio=STRONG, group="idle") for w in idle),
        *(waits if idle else ()),
    )


def _empty(ctx: Context, worker: str) -> bool:
    """Whether a worker answers and holds nothing: one that gets little because it is slow still holds that."""
    held = [ctx.ask.level(worker, s) for s in ("running_requests", "queue_depth")]
    return not ctx.is_down(worker) and all(r.below(EMPTY) for r in held)


def _waits(ctx: Context, workers: tuple[str, ...]) -> tuple[Weighed, ...]:
    return tuple(
        ctx.saw("queue_depth", w, depth, WAITING, basis="physics", ratio=MODERATE, group="waits")
        for w in workers
        if (depth := ctx.ask.level(w, "queue_depth")).above(WAITING)
    )


def _flees(ctx: Context, split: Split) -> bool:
    """Whether requests go to the hottest because the others are full: fewer wait there, while they pile up elsewhere."""
    there = ctx.ask.level(split.hottest, "queue_depth_capacity").value
    others = [ctx.ask.level(w, "queue_depth_capacity") for w in split.by_worker if w != split.hottest]
    crowded = [r for r in others if r.above(max(WAITING, FEWER * there))] if there is not None else []
    return 2 * len(crowded) > len(others)


def _more(role: Role) -> DoNot:
    action = "scale-out-prefill" if role is Role.PREFILL else "scale-out-decode"
    return DoNot(action=action, why="the pool has room; more workers do not change how they are chosen")


def _weigh(ctx: Context, split: Split, ratio: float) -> Weighed:
    hot = split.hottest
    signal = split.signal if split.signal in ("running_requests", "queue_depth") else f"{split.signal}.rate"
    return ctx.saw(signal, hot, split.by_worker[hot], split.mean, basis="peer", ratio=ratio, group=split.signal)


def _reasons(ctx: Context, gets: Split | None, worst: Split) -> tuple[Weighed, ...]:
    """Return what else makes load uneven: even traffic to workers of uneven speed, or idle workers that just started."""
    found = []
    if gets is not None and gets.skew < EVEN:
        hot = gets.hottest
        found.append(
            ctx.saw(
                f"{gets.signal}.rate", hot, gets.by_worker[hot], gets.mean, basis="peer", ratio=STRONG, group="even"
            )
        )
    started = [w.id for role in (Role.PREFILL, Role.DECODE) for w, _ in ctx.restarted(role)]
    for worker in worst.idle:
        if worker in started:
            found.append(
                ctx.saw("process_start_seconds", worker, "just started", None, basis="log", ratio=STRONG, group="new")
            )
    return tuple(found)


def _drawn(ctx: Context, workers: tuple[str, ...], hot: str) -> tuple[Weighed, ...]:
    rates = {s.unit: s.now for s in shares(ctx, LOCAL) if s.unit in workers}
    others = median([r.value for w, r in rates.items() if w != hot and r.value is not None])
    if hot not in rates or others is None or not rates[hot].above(others + HOTTER):
        return ()
    return (ctx.saw("prefix_cache_hits", hot, rates[hot], others, basis="peer", ratio=STRONG, group="prefix"),)
