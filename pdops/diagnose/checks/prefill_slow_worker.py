"""Prefill takes longer for the same tokens than its peers, or than it did: one worker, the pool, or its chunks."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.deviance import spread
from pdops.diagnose.finding import STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear, not_known
from pdops.diagnose.load import WAITING, crowd, prompt, size
from pdops.diagnose.preflight import amount
from pdops.diagnose.symptoms import picture
from pdops.model.cluster import Role
from pdops.model.report import Basis, DoNot, Layer, Symptom
from pdops.model.series import Reading, Window, unknown

META = CheckMeta(
    id="prefill/slow-worker",
    title="Prefill is slower for the same tokens: one worker, or all of them",
    causes=("prefill-slow-worker", "gpu-throttle", "chunked-prefill-misconfig"),
    needs=(
        "prefill_seconds",
        "prompt_tokens",
        "prefix_cache_hits",
        "running_requests",
        "queue_depth_capacity",
        "ttft_seconds",
    ),
    tier=Tier.STAGE,
    explains=("prefill-undersized", "router-imbalance", "ratio-wrong", "no-timeout-hang", "timeout-too-short"),
    no_alert="it sets time beside computed tokens, worker by worker; the wait it causes is alerted as PDPrefillQueueing",
)

SLOWER = 1.5
"""A time per token this many times its peers' or its own is out of line; batching moves it by less."""
SMALL_BUDGET = 2048.0
"""Tokens a step may take, below which a prefill worker pays the fixed cost of a step too often. vLLM's tuning guide names
2048 as the small value, for the sake of token gaps, which a worker that only prefills does not have."""
_FLOOR_RATIO = 0.1
"""Least spread among peers that counts, as a share of the middle."""
_LEAST = 2
"""Prefills in the window below which nothing is said of a mean."""
_MANY = 20
"""Prefills from which on the mean alone is judged."""
_SPREAD = 2.0
"""Standard errors of a mean that chance may add to it, where times spread like an exponential: with few prefills only a
large difference counts."""


def check(ctx: Context) -> Iterator[Finding]:
    """Compare seconds per computed token with peers, where there are five workers, else with the worker's own past."""
    if not picture(ctx).ttft_high:
        return
    known = {u: r for u in ctx.units(Role.PREFILL) if (r := _told(ctx, u)).known}
    if not known:
        why, fix = "time per token of the prefill workers is not known", "scrape the prefill workers themselves"
        yield not_known("prefill-slow-worker", "prefill_seconds", why, fix)
        return
    middle = sorted(r.value or 0.0 for r in known.values())[len(known) // 2]
    peers = spread(ctx, lambda s, w: _per_token(ctx, s, w), Role.PREFILL, floor=_FLOOR_RATIO * middle)
    before = _slower_than_before(ctx, known)
    basis: Basis = "peer" if peers.known else "history"
    slow = (
        {d.unit: d.usual for d in peers.deviants if d.z > 0 and d.ratio > SLOWER * _chance(d.now)}
        if peers.known
        else before
    )
    if len(before) == len(known):
        yield from _all_slow(ctx, _seen(ctx, known, before, "history"))
        return
    if not slow:
        most = max(known, key=lambda u: known[u].value or 0.0)
        yield clear(
            "prefill-slow-worker",
            f"the slowest takes {known[most].value or 0.0:.3g} s per prompt token, the middle {middle:.3g}",
            ctx.scope(most),
        )
        return
    yield Finding(
        status=Status.FIRED,
        cause="prefill-slow-worker",
        scopes=tuple(ctx.scope(u) for u in slow),
        for_=_seen(ctx, known, slow, basis),
        symptoms=(Symptom.TTFT,),
        next=("compare clocks, throttle reasons, host load and neighbours of the slow worker's GPU with its peers",),
        runbooks=("routing-rebalance", "restart-worker"),
        do_not=(DoNot(action="scale-out-prefill", why="the others have room; requests still wait at the slow one"),),
    )


def _seen(ctx: Context, known: dict[str, Reading], usual: dict[str, float], basis: Basis) -> tuple[Weighed, ...]:
    signal = "prefill_seconds per prompt_tokens"
    return tuple(
        ctx.saw(signal, unit, known[unit], was, basis=basis, ratio=STRONG, group="slow") for unit, was in usual.items()
    )


def _all_slow(ctx: Context, slow: tuple[Weighed, ...]) -> Iterator[Finding]:
    """Yield why a whole pool became slower for the same tokens: steps cut too small, else the machines themselves."""
    small = tuple(
        ctx.saw("max_num_batched_tokens", w.id, value, SMALL_BUDGET, basis="config", ratio=STRONG, group="budget")
        for w in ctx.cluster.of_role(Role.PREFILL)
        if (value := amount(ctx, w.id, "max_num_batched_tokens")) is not None and value < SMALL_BUDGET
    )
    scopes = tuple(ctx.scope(p) for p in ctx.pools(Role.PREFILL))
    if small:
        yield Finding(
            status=Status.FIRED,
            cause="chunked-prefill-misconfig",
            scopes=scopes,
            for_=(*slow, *small),
            symptoms=(Symptom.TTFT,),
            next=(
                "compare max_num_batched_tokens of prefill with the length of prompts: each step pays its fixed cost anew",
                "raise it on prefill; small steps are for workers that decode at the same time",
            ),
            runbooks=("ttft-prefill-relief",),
            do_not=(DoNot(action="scale-out-prefill", why="new workers would cut prompts into the same small steps"),),
        )
    behind = _starved(ctx)
    if behind is not None:
        why = "decode does not take what prefill has ready, so prompts begin in bursts and their times say little"
        yield clear("gpu-throttle", why, ctx.scope(behind))
        return
    yield Finding(
        status=Status.FIRED,
        cause="gpu-throttle",
        layer=Layer.PREFILL,
        scopes=scopes,
        for_=slow,
        against=small,
        symptoms=(Symptom.TTFT,),
        next=(
            "read clocks, power and temperature of all prefill GPUs: what do they share, such as a power cap or a rack?",
            "see what was rolled out to all of them at once: driver, build, options",
        ),
        runbooks=("ttft-prefill-relief",),
        do_not=(
            DoNot(action="restart-victim", why="all of them are slow; a restart empties caches and cools nothing"),
        ),
    )


def _starved(ctx: Context) -> str | None:
    """Return a decode worker for which requests wait."""
    units = ctx.units(Role.DECODE)
    return next((u for u in units if ctx.ask.level(u, "queue_depth_capacity").above(WAITING * size(ctx, u))), None)


def _slower_than_before(ctx: Context, known: dict[str, Reading]) -> dict[str, float]:
    found = {}
    for unit, now in known.items():
        before = ctx.before(lambda s, w: _per_token(ctx, s, w), unit)
        if before is not None and before > 0 and now.above(SLOWER * _chance(now) * before):
            found[unit] = before
    return found


def _chance(mean: Reading) -> float:
    return 1.0 + _SPREAD / mean.n**0.5 if mean.n < _MANY else 1.0


def _told(ctx: Context, unit: str) -> Reading:
    """Return seconds per computed token, or at least how many where a worker was busy all the time and finished nothing."""
    found = _per_token(ctx, unit, None)
    length, finished = prompt(ctx, unit), ctx.ask.increase(unit, "prefill_seconds")
    busy = ctx.ask.highest(unit, "running_requests", 0.0)
    if found.known or finished.value != 0 or not length.value or not busy.above(0) or size(ctx, unit) > 1:
        return found
    return Reading(ctx.view.now.span_s / length.value / crowd(ctx, unit), "ge", n=_MANY)


def _per_token(ctx: Context, unit: str, window: Window | None) -> Reading:
    """Return seconds of prefill per token that had to be computed, as if each prompt were computed alone.

    Prompts in one step wait for each other's tokens, so the time of each grows with how many share the worker.
    """
    mean = ctx.ask.mean(unit, "prefill_seconds", window)
    count = ctx.ask.increase(unit, "prefill_seconds", window)
    asked, hits = (
        ctx.ask.increase(unit, "prompt_tokens", window).value,
        ctx.ask.increase(unit, "prefix_cache_hits", window),
    )
    length = prompt(ctx, unit, window)
    if asked is None and count.value is not None and length.value is not None:
        asked = count.value * length.value
    if mean.value is None or count.value is None or asked is None:
        return unknown("time or tokens of prefill are not known")
    if hits.value is None and ctx.ask.has(unit, "prefix_cache_hits"):
        return unknown("which tokens were cached is not known for this window")
    # An engine that never told of a cache computes all that it is asked.
    computed = asked - (hits.value or 0.0)
    if count.value < _LEAST or computed <= 0:
        return unknown("too few prefills in the window")
    alone_s = mean.value / crowd(ctx, unit, window)
    return Reading(alone_s * count.value / computed, n=int(count.value))
