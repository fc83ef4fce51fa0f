"""KV moves slower than it should."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pdops.diagnose import past
from pdops.diagnose.context import Comparison, Context
from pdops.diagnose.finding import (
    DECISIVE,
    MODERATE,
    STRONG,
    WEAK,
    CheckMeta,
    Finding,
    Status,
    Tier,
    Weighed,
    clear,
    not_known,
)
from pdops.diagnose.limits import FALLBACK, SLOW
from pdops.diagnose.matrix import narrowed
from pdops.diagnose.symptoms import picture
from pdops.diagnose.ttft import split
from pdops.diagnose.wire import Way, way_seen, wire
from pdops.history.readings import BANDWIDTH
from pdops.model.cluster import CLIENT, PAIR_PREFIX, Pair, Role
from pdops.model.report import DoNot, Symptom
from pdops.model.series import Reading

META = CheckMeta(
    id="transfer/link-slow",
    title="KV transfers are slower than their peers, their history or the link",
    causes=("transport-fallback-slow", "transport-slow", "network-degraded"),
    needs=(
        "kv_transfer_bandwidth",
        "kv_transfer_seconds",
        "kv_transfer_bytes",
        "transfer_queue_depth",
        "rdma_bytes",
        "rdma_received_bytes",
        "ttft_seconds",
    ),
    tier=Tier.STAGE,
    # KV on its way holds its blocks on both sides, so either may run out of them, and prefill's cache has less room. Who
    # waits for it longer than anybody has patience leaves KV behind.
    explains=(
        "decode-undersized",
        "decode-kv-exhaustion",
        "prefill-undersized",
        "prefill-slow-worker",
        "backpressure-to-prefill",
        "router-imbalance",
        "workload-shift",
        "output-inflation",
        "kv-strand-prefill",
        "timeout-too-short",
    ),
    alert="PDKvTransferSlow",
    panel="kv-transfer/bandwidth",
)

LITTLE = 0.2
"""Share of TTFT below which no change of a stage can explain that TTFT is high."""
UNFELT = 0.05
"""Share of the promised TTFT below which a transfer is not felt: short transfers of few bytes vary by more than any link."""
SHARING = 0.1
"""Share of its own past to which a receiver may fall only for sharing senders with a slow one: a NIC that serves some ten
transfers at once gives each a tenth."""
FAST = 1.5
"""A median transfer up to this many times its past is as fast as ever: sizes vary by as much."""
STALLED = 5.0
"""Mean over that of before from which the rest of the transfers waits for something else than bandwidth."""
_SEVERAL = 3
FELL_BACK = "transport-fallback-slow"
DOMINATES = 0.5
"""Share of the known part of TTFT above which a stage is where the time goes."""


def check(ctx: Context) -> Iterator[Finding]:
    """Set each pair's, or each decode worker's, bandwidth beside peers, the stated link, or its own history."""
    pairs = [pair.key for pair in ctx.pairs_with(*BANDWIDTH) if ctx.ask.bandwidth(pair.key).known]
    units = pairs or [*ctx.units(Role.DECODE), *ctx.units(Role.PREFILL)]
    compared = _compare(ctx, units)
    slow = {u: c for u, c in compared.items() if c.ratio is not None and c.ratio < SLOW and c.now.bound != "ge"}
    if not slow and not any(c.ratio is not None for c in compared.values()):
        yield from _dominates(ctx)
    if not slow:
        yield from _not_slow(ctx, compared)
        return
    slow = _guilty(slow)
    worst = min(c.ratio for c in slow.values() if c.ratio is not None)
    for_ = [
        ctx.saw("kv_transfer_bandwidth.mean", u, c.now, c.expected, basis=c.basis, ratio=STRONG, group="bandwidth")
        for u, c in slow.items()
    ]
    for_ += _share(ctx)
    against = _overlap(ctx) if worst >= FALLBACK / 2 else ()
    little = _little(ctx, slow) or _unfelt(ctx, slow)
    factor = ctx.saw(
        "kv_transfer_bandwidth.mean",
        None,
        f"{worst:.2f} of expected",
        f"below {FALLBACK:g} points to another path, {FALLBACK:g}-{SLOW:g} to a slow one",
        basis="physics",
        ratio=MODERATE,
        group="factor",
    )
    left, kept = _ways(ctx, slow)
    told = bool(left or kept)
    other_path = bool(left) if told else worst < FALLBACK
    # That KV goes where it always went excludes another path; it is no great sign that the path is slow.
    signs = (*left, *(replace(w, ratio=MODERATE) for w in kept)) if told else (factor,)
    contrary = (*left, *kept) if told else (factor,)
    scopes = narrowed(ctx, list(slow))
    few = _few_stall(ctx, slow)
    if few:
        yield Finding(
            status=Status.FIRED,
            cause="network-degraded",
            scopes=scopes,
            for_=(*for_, *few),
            against=little,
            symptoms=(Symptom.TTFT,),
            next=(
                "find what the slow ones have in common: a sender, a first transfer after a pause, a path that loses packets",
                "read retransmissions and connection errors of the ports; set keep-alive below the idle limit of what is between",
            ),
            runbooks=("kv-transfer-relief",),
            do_not=(DoNot(action="scale-out-prefill", why="transfers stall; more prefill makes more of them"),),
        )
    for cause, fits in ((FELL_BACK, other_path), ("transport-slow", not other_path)):
        yield Finding(
            status=Status.FIRED,
            cause=cause,
            scopes=scopes,
            for_=(*for_, *signs) if fits else tuple(for_),
            against=(*(against if cause == FELL_BACK else ()), *(() if fits else contrary), *little, *few),
            symptoms=(Symptom.TTFT,),
            next=(
                f"compare UCX_TLS and UCX_NET_DEVICES of {_ends(slow)} with a peer that is fast",
                "run one transfer with UCX_PROTO_INFO=y and read which transport it takes",
                "measure the link itself between the two nodes",
            ),
            runbooks=("kv-transfer-relief",),
            do_not=(
                DoNot(action="scale-out-prefill", why="the time is lost on the link; more prefill adds load to it"),
            ),
        )


def _few_stall(ctx: Context, slow: Iterable[str]) -> tuple[Weighed, ...]:
    """Return the receivers of which half of the transfers are as fast as ever while the mean is many times what it was.

    A slow link slows all of them. It must be so at half of several that are slow, as the median of one that has few senders
    says which of them it heard.
    """
    units = [u for u in slow if not u.startswith(PAIR_PREFIX)]
    found = []
    for unit in units:
        half, mean = ctx.ask.quantile(unit, "kv_transfer_seconds", 0.5), ctx.ask.mean(unit, "kv_transfer_seconds")
        base = ctx.view.base
        was = ctx.ask.quantile(unit, "kv_transfer_seconds", 0.5, base).value if base is not None else None
        usual = past.mean(ctx, unit, "kv_transfer_seconds")
        if was and usual and half.below(FAST * was) and mean.above(STALLED * usual):
            seen = f"half within {half.value or 0.0:.3g} s, {mean.value or 0.0:.3g} s on the mean"
            text = f"half within {was:.3g} s, {usual:.3g} s on the mean"
            found.append(ctx.saw("kv_transfer_seconds", unit, seen, text, basis="history", ratio=STRONG, group="few"))
    return tuple(found) if len(found) >= _SEVERAL and 2 * len(found) >= len(units) else ()


def _guilty(slow: dict[str, Comparison]) -> dict[str, Comparison]:
    """Return those that are slow beside their peers, if there are any: what shares a sender with them is slowed too.

    Where the others lost far more than sharing costs, all of them are slow, some more than others. Beside one that lost ten
    times as much the rest only share.
    """
    apart = {u: c for u, c in slow.items() if c.basis == "peer"}
    rest = [c.ratio for u, c in slow.items() if u not in apart and c.ratio is not None]
    found = apart if apart and all(r >= SHARING for r in rest) else slow
    least = min(c.ratio for c in found.values() if c.ratio is not None)
    return {u: c for u, c in found.items() if c.ratio is not None and SHARING * c.ratio <= least}


def _ways(ctx: Context, slow: Iterable[str]) -> tuple[tuple[Weighed, ...], tuple[Weighed, ...]]:
    """Return the receivers whose KV no longer goes through their RDMA ports, and those whose KV still does."""
    left, kept = [], []
    for unit in dict.fromkeys(Pair.parse(u).dst if u.startswith(PAIR_PREFIX) else u for u in slow):
        found = wire(ctx, unit)
        if found.way is Way.LEFT:
            left.append(way_seen(ctx, found, DECISIVE, "way"))
        elif found.way is not Way.UNKNOWN:
            kept.append(way_seen(ctx, found, DECISIVE, "way"))
    return tuple(left), () if left else tuple(kept)


def _bandwidth(ctx: Context, unit: str) -> Reading:
    """Return a unit's bandwidth; while none of its transfers ends, that of its ports over those on their way."""
    told = ctx.ask.bandwidth(unit)
    if told.known or unit.startswith(PAIR_PREFIX):
        return told
    found, under_way = wire(ctx, unit), ctx.ask.level(unit, "transfer_queue_depth")
    # Where transfers end and nobody tells how long they took, the ports also count the time between them.
    if found.kv or not found.moves or not under_way.above(0) or found.port is None:
        return told
    return Reading(found.port / max(1.0, under_way.value or 0.0), n=under_way.n)


def _compare(ctx: Context, units: list[str]) -> dict[str, Comparison]:
    """Set every bandwidth beside the stated link, the best half of its peers, or its own history."""
    now = {u: _bandwidth(ctx, u) for u in units}
    link = ctx.cluster.link_bytes_per_s
    ranked = sorted(r.value for r in now.values() if r.value is not None)
    # One slow receiver makes a whole column of pairs slow, so the better half of the others says what is possible.
    peer = ranked[(3 * len(ranked)) // 4] if len(ranked) > 1 else None
    found = {}
    for unit, reading in now.items():
        if link is not None and reading.value is not None:
            found[unit] = Comparison(reading, link, "config")
        elif peer is not None and reading.value is not None and reading.value < SLOW * peer:
            found[unit] = Comparison(reading, peer, "peer")
        else:
            found[unit] = Comparison(reading, ctx.before(ctx.ask.bandwidth, unit), "history")
    return found


def _share(ctx: Context) -> list[Weighed]:
    """Look where else a slow link must show: transfer time up, while prefill's own time is not."""
    found = []
    for unit in ctx.units(Role.DECODE):
        now = ctx.ask.mean(unit, "kv_transfer_seconds")
        before = ctx.before(lambda s, w: ctx.ask.mean(s, "kv_transfer_seconds", w), unit)
        if before is not None and before > 0 and now.above(2 * before):
            found.append(
                ctx.saw("kv_transfer_seconds.mean", unit, now, before, basis="history", ratio=WEAK, group="time")
            )
    return found


def _dominates(ctx: Context) -> Iterator[Finding]:
    """Without anything to compare with, judge by the split of TTFT alone, and say no more than that carries."""
    stages = {s.stage: s.seconds for s in split(ctx) if isinstance(s.seconds, float)}
    transfer, known = stages.get("kv_transfer", 0.0), sum(stages.values())
    if not picture(ctx).ttft_high or transfer < DOMINATES * known or known <= 0:
        return
    seen = ctx.saw(
        "kv_transfer_seconds.mean",
        None,
        transfer,
        (1 - DOMINATES) * known,
        basis="physics",
        ratio=STRONG,
        group="share",
    )
    yield Finding(
        status=Status.FIRED,
        cause="transport-slow",
        scopes=tuple(ctx.scope(u) for u in ctx.units(Role.DECODE)),
        for_=(seen,),
        symptoms=(Symptom.TTFT,),
        next=("measure the link between prefill and decode, and compare with bytes moved over transfer time",),
        runbooks=("kv-transfer-relief",),
        do_not=(DoNot(action="scale-out-prefill", why="most of TTFT is KV transfer, not prefill"),),
        cap=0.6,
    )


def _little(ctx: Context, slow: Iterable[str]) -> tuple[Weighed, ...]:
    """Return that transfers take too small a part of TTFT to be what makes it long."""
    stages = {s.stage: s.share for s in split(ctx)}
    share = stages.get("kv_transfer")
    if share is None:
        share = _most(ctx, slow)
    if share is None or share >= LITTLE or not picture(ctx).ttft_high or _breaks_alone(ctx):
        return ()
    seen = f"{share:.0%} of TTFT"
    return (
        ctx.saw("kv_transfer_seconds.mean", None, seen, "half of it", basis="physics", ratio=DECISIVE, group="little"),
    )


def _most(ctx: Context, slow: Iterable[str]) -> float | None:
    """Return the longest mean transfer of the slow ones over what clients wait on the mean, where stages are not all told."""
    waited = ctx.ask.mean(CLIENT, "ttft_seconds").value
    took = [ctx.ask.mean(u, "kv_transfer_seconds") for u in slow]
    if not waited or any(r.value is None or r.bound == "ge" for r in took):
        return None
    return max((r.value or 0.0 for r in took), default=0.0) / waited


def _breaks_alone(ctx: Context) -> bool:
    """Whether a mean transfer alone takes longer than the first token was promised."""
    promised = ctx.slo.ttft_s
    if promised is None:
        return False
    return any(ctx.ask.mean(pool, "kv_transfer_seconds").above(promised) for pool in ctx.pools(Role.DECODE))


def _unfelt(ctx: Context, slow: Iterable[str]) -> tuple[Weighed, ...]:
    """Return that transfers, slower than they were, take so little of what was promised that no client can feel them."""
    promised = ctx.slo.ttft_s
    if promised is None or picture(ctx).ttft_high:
        return ()
    readings = {u: ctx.ask.mean(u, "kv_transfer_seconds") for u in slow}
    if not readings or any(
        r.value is None or r.bound == "ge" or r.value >= UNFELT * promised for r in readings.values()
    ):
        return ()
    unit, worst = max(readings.items(), key=lambda item: item[1].value or 0.0)
    return (
        ctx.saw(
            "kv_transfer_seconds.mean", unit, worst, UNFELT * promised, basis="physics", ratio=DECISIVE, group="little"
        ),
    )


def _overlap(ctx: Context) -> tuple[Weighed, ...]:
    """Return the number of overlapping transfers: it divides the measured speed without any fault of the link."""
    found = []
    for unit in ctx.units(Role.DECODE):
        level = ctx.ask.level(unit, "transfer_queue_depth")
        if level.above(2.0):
            found.append(
                ctx.saw("transfer_queue_depth", unit, level, 1.0, basis="physics", ratio=MODERATE, group="overlap")
            )
    return tuple(found)


def _ends(slow: dict[str, Comparison]) -> str:
    return ", ".join(key.removeprefix("pair:") for key in list(slow)[:3])


def _not_slow(ctx: Context, compared: dict[str, Comparison]) -> Iterator[Finding]:
    known = {u: c for u, c in compared.items() if c.ratio is not None}
    if known:
        unit, best = min(known.items(), key=lambda item: item[1].ratio or 0.0)
        yield clear("transport-slow", f"slowest bandwidth is {best.ratio:.2f} of expected", ctx.scope(unit))
        return
    moving = {u: c for u, c in compared.items() if c.now.known}
    if moving:
        fix = "set links.baseline_bytes_per_s in the inventory, or wait for five minutes of history"
        yield not_known("transport-slow", "kv_transfer_bandwidth", "nothing to compare the bandwidth with", fix)
