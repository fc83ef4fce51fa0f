"""Links are full, or lose and delay what they carry."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, WEAK, CheckMeta, Finding, Status, Tier, Weighed, clear, not_known
from pdops.diagnose.wire import FOREIGN, Way, Wire, way_seen, wire
from pdops.history.readings import BANDWIDTH
from pdops.model.cluster import Role
from pdops.model.report import DoNot, Symptom, Verdict
from pdops.model.series import Reading

META = CheckMeta(
    id="network/saturated",
    title="RDMA links are full or count errors",
    causes=("network-saturated", "network-degraded"),
    needs=(
        "rdma_bytes",
        "rdma_received_bytes",
        "rdma_errors",
        "rdma_waits",
        "kv_transfer_bytes",
        "kv_transfer_bandwidth",
        "kv_transfer_failures",
    ),
    tier=Tier.PAIR,
    explains=(
        "transport-slow",
        "transport-fallback-slow",
        "transport-error",
        "decode-slow-worker",
        "decode-kv-exhaustion",
        "prefill-undersized",
        "backpressure-to-prefill",
        "router-imbalance",
        "output-inflation",
    ),
    alert="PDNetworkSaturated",
    panel="network/rdma",
)

FULL = 0.8
"""Share of a link's rate from which transfers wait for each other."""
FASTER = 2.0
"""Errors this many times as fast as before are trouble of now, not the noise of a long cable."""
SLOW = 0.7
"""A transfer below this share of its former speed feels the link."""


def check(ctx: Context) -> Iterator[Finding]:
    """Set bytes and errors of each worker's ports beside the stated link and beside what KV transfers feel of it."""
    units = (*ctx.units(Role.PREFILL), *ctx.units(Role.DECODE))
    link = ctx.cluster.link_bytes_per_s
    rates = {u: _port(ctx, u) for u in units}
    known = {u: r for u, r in rates.items() if r.known}
    felt = _felt(ctx)
    shared = {u: w for u in units if (w := wire(ctx, u)).way is Way.SHARED}
    if shared and felt and link is None:
        yield _shared(ctx, shared, felt)
    elif known and link is None:
        fix = "set links.baseline_bytes_per_s in the inventory"
        yield not_known("network-saturated", "rdma_bytes", "the rate of the links is not known", fix)
    elif known and link is not None:
        full = {u: r for u, r in known.items() if r.above(FULL * link)}
        if full:
            yield _saturated(ctx, {u: r.value or 0.0 for u, r in full.items()}, link, felt)
        else:
            most = max(r.value or 0.0 for r in known.values())
            yield clear("network-saturated", f"the busiest port carries {most / link:.0%} of its link")
    yield from _degraded(ctx, units, felt)


def _port(ctx: Context, unit: str) -> Reading:
    """Return the busier direction of a worker's ports."""
    both = [ctx.ask.rate(unit, signal) for signal in ("rdma_bytes", "rdma_received_bytes")]
    return max(both, key=lambda r: -1.0 if r.value is None else r.value)


def _shared(ctx: Context, shared: dict[str, Wire], felt: tuple[Weighed, ...]) -> Finding:
    """Return that a port came to carry mostly other bytes than KV, and that KV has been slower since."""
    for_ = [way_seen(ctx, w, STRONG, "full") for w in shared.values()]
    for unit in shared:
        now, before = ctx.ask.rate(unit, "rdma_waits"), past.rate(ctx, unit, "rdma_waits")
        if before is not None and now.above(FASTER * before):
            for_.append(ctx.saw("rdma_waits.rate", unit, now, before, basis="history", ratio=STRONG, group="waits"))
    return _finding(ctx, list(shared), (*for_, *felt), list(shared), felt)


def _saturated(ctx: Context, full: dict[str, float], link: float, felt: tuple[Weighed, ...]) -> Finding:
    for_ = [
        ctx.saw("rdma_bytes.rate", u, rate, FULL * link, basis="config", ratio=STRONG, group="full")
        for u, rate in full.items()
    ]
    foreign = [
        u for u, rate in full.items() if _kv_rate(ctx, u) is not None and rate > FOREIGN * (_kv_rate(ctx, u) or 0.0)
    ]
    return _finding(ctx, list(full), (*for_, *felt), foreign, felt)


def _finding(
    ctx: Context, places: list[str], for_: tuple[Weighed, ...], foreign: list[str], felt: tuple[Weighed, ...]
) -> Finding:
    step = (
        f"most bytes on {', '.join(foreign[:3])} are not KV: find the job that shares the ports"
        if foreign
        else "compare KV bytes per second with the link; compress KV, spread pairs over more links, or admit less"
    )
    return Finding(
        status=Status.FIRED,
        cause="network-saturated",
        scopes=tuple(ctx.scope(u) for u in places),
        for_=for_,
        verdict=Verdict.FAULT if foreign else Verdict.OVERLOAD,
        symptoms=(Symptom.TTFT,) if felt else (),
        next=(step, "look at the switch: which port is full, and who else sends through it"),
        runbooks=("kv-transfer-relief",),
        do_not=(DoNot(action="scale-out-prefill", why="the links are full; more prefill sends more KV over them"),),
    )


def _degraded(ctx: Context, units: tuple[str, ...], felt: tuple[Weighed, ...]) -> Iterator[Finding]:
    for_: list[Weighed] = []
    known = False
    for unit in units:
        now, before = ctx.ask.rate(unit, "rdma_errors"), past.rate(ctx, unit, "rdma_errors")
        known = known or now.known
        if now.above(0) and before is not None and now.above(FASTER * before):
            for_.append(
                ctx.saw(
                    "rdma_errors.rate",
                    unit,
                    now,
                    before,
                    basis="history",
                    ratio=STRONG if felt else WEAK,
                    group="errors",
                )
            )
    if not for_:
        if known:
            yield clear("network-degraded", "ports count no more errors than before")
        return
    yield Finding(
        status=Status.FIRED,
        cause="network-degraded",
        scopes=tuple(dict.fromkeys(w.evidence.scope for w in for_ if w.evidence.scope)),
        for_=(*for_, *felt),
        symptoms=(Symptom.TTFT,) if felt else (),
        next=(
            "read the port's counters by name: symbol errors and link downs mean cable or optics, waits mean congestion",
            "move traffic off that port and test it by itself between two nodes",
        ),
        runbooks=("kv-transfer-relief",),
        do_not=(
            DoNot(action="scale-out-prefill", why="more prefill sends more KV over the link that is in trouble"),
            DoNot(action="raise-retries", why="retried transfers add load to the link that is in trouble"),
        ),
    )


def _felt(ctx: Context) -> tuple[Weighed, ...]:
    """Return that KV transfers are slower than they were, or fail."""
    found = []
    for unit in (*(p.key for p in ctx.pairs_with(*BANDWIDTH, "kv_transfer_failures")), *ctx.units(Role.DECODE)):
        now, before = ctx.ask.bandwidth(unit), ctx.before(ctx.ask.bandwidth, unit)
        if before is not None and now.below(SLOW * before):
            found.append(
                ctx.saw(
                    "kv_transfer_bandwidth.mean", unit, now, before, basis="history", ratio=MODERATE, group="slower"
                )
            )
        failed = ctx.ask.increase(unit, "kv_transfer_failures")
        if failed.above(0):
            found.append(
                ctx.saw("kv_transfer_failures", unit, failed, 0.0, basis="physics", ratio=MODERATE, group="failures")
            )
    return tuple(found)


def _kv_rate(ctx: Context, unit: str) -> float | None:
    return ctx.ask.rate(unit, "kv_transfer_bytes").value
