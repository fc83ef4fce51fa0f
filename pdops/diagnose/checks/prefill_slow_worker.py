"""One or few prefill workers take longer for the same tokens than their peers, or than they did."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.deviance import spread
from pdops.diagnose.finding import STRONG, CheckMeta, Finding, Status, Tier, clear, not_known
from pdops.diagnose.symptoms import picture
from pdops.model.cluster import Role
from pdops.model.report import Basis, DoNot, Symptom
from pdops.model.series import Reading, Window, unknown

META = CheckMeta(
    id="prefill/slow-worker",
    title="One prefill worker is slower than its peers for the same tokens",
    causes=("prefill-slow-worker",),
    needs=("prefill_seconds", "prompt_tokens", "prefix_cache_hits", "ttft_seconds"),
    tier=Tier.STAGE,
    explains=("prefill-undersized", "router-imbalance"),
    no_alert="it sets time beside computed tokens, worker by worker; the wait it causes is alerted as PDPrefillQueueing",
)

SLOWER = 1.5
"""A time per token this many times its peers' or its own is out of line; batching moves it by less."""
_FLOOR_RATIO = 0.1
"""Least spread among peers that counts, as a share of the middle."""
_LEAST = 20
"""Prefills in the window below which a mean is chance."""


def check(ctx: Context) -> Iterator[Finding]:
    """Compare seconds per computed token with peers, where there are five workers, else with the worker's own past."""
    if not picture(ctx).ttft_high:
        return
    known = {u: r for u in ctx.units(Role.PREFILL) if (r := _per_token(ctx, u, None)).known}
    if not known:
        why, fix = "time per token of the prefill workers is not known", "scrape the prefill workers themselves"
        yield not_known("prefill-slow-worker", "prefill_seconds", why, fix)
        return
    middle = sorted(r.value or 0.0 for r in known.values())[len(known) // 2]
    peers = spread(ctx, lambda s, w: _per_token(ctx, s, w), Role.PREFILL, floor=_FLOOR_RATIO * middle)
    basis: Basis = "peer" if peers.known else "history"
    if peers.known:
        slow = {d.unit: d.usual for d in peers.deviants if d.z > 0 and d.ratio > SLOWER}
    else:
        slow = _slower_than_before(ctx, known)
    if not slow:
        most = max(known, key=lambda u: known[u].value or 0.0)
        yield clear(
            "prefill-slow-worker",
            f"the slowest takes {known[most].value or 0.0:.3g} s per prompt token, the middle {middle:.3g}",
            ctx.scope(most),
        )
        return
    signal = "prefill_seconds per prompt_tokens"
    for_ = tuple(
        ctx.saw(signal, unit, known[unit], usual, basis=basis, ratio=STRONG, group="slow")
        for unit, usual in slow.items()
    )
    yield Finding(
        status=Status.FIRED,
        cause="prefill-slow-worker",
        scopes=tuple(ctx.scope(u) for u in slow),
        for_=for_,
        symptoms=(Symptom.TTFT,),
        next=("compare clocks, throttle reasons, host load and neighbours of the slow worker's GPU with its peers",),
        runbooks=("routing-rebalance", "restart-worker"),
        do_not=(DoNot(action="scale-out-prefill", why="the others have room; requests still wait at the slow one"),),
    )


def _slower_than_before(ctx: Context, known: dict[str, Reading]) -> dict[str, float]:
    found = {}
    for unit, now in known.items():
        before = ctx.before(lambda s, w: _per_token(ctx, s, w), unit)
        if before is not None and before > 0 and now.above(SLOWER * before):
            found[unit] = before
    return found


def _per_token(ctx: Context, unit: str, window: Window | None) -> Reading:
    """Return seconds of prefill per token that had to be computed."""
    mean = ctx.ask.mean(unit, "prefill_seconds", window)
    count = ctx.ask.increase(unit, "prefill_seconds", window)
    asked, hits = ctx.ask.increase(unit, "prompt_tokens", window), ctx.ask.increase(unit, "prefix_cache_hits", window)
    if mean.value is None or count.value is None or asked.value is None:
        return unknown("time or tokens of prefill are not known")
    computed = asked.value - (hits.value or 0.0)
    if count.value < _LEAST or computed <= 0:
        return unknown("too few prefills in the window")
    return Reading(mean.value * count.value / computed, n=int(count.value))
