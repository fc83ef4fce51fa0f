"""Transfers are under way and no byte moves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.matrix import silent
from pdops.diagnose.symptoms import picture
from pdops.diagnose.wire import wire
from pdops.model.cluster import Pair, Role
from pdops.model.report import DoNot, Scope, Symptom
from pdops.model.series import Series, Window

META = CheckMeta(
    id="transfer/stalled",
    title="KV transfers are in progress and no byte moves",
    causes=("network-partition",),
    needs=(
        "transfer_queue_depth",
        "kv_transfer_bytes",
        "queue_depth_deferred",
        "kv_transfer_failures",
        "kv_transfer_seconds",
        "rdma_received_bytes",
        "handoff_seconds",
    ),
    tier=Tier.PAIR,
    explains=(
        "decode-undersized",
        "prefill-undersized",
        "backpressure-to-prefill",
        "kv-lease-expiry",
        "kv-strand-prefill",
        "transport-slow",
        "transport-fallback-slow",
        "timeout-too-short",
        "decode-kv-exhaustion",
        "output-inflation",
    ),
    alert="PDKvTransferStalled",
    panel="kv-transfer/in-progress",
)

SLOWEST = 3.0
"""Mean transfer times without an end after which a slow link is no explanation: one in twenty takes longer by chance."""
STALL_S = 15.0
"""A cut KV link moved no failure counter for 70 s on a real pair: in-progress stayed above zero and no byte moved."""


def check(ctx: Context) -> Iterator[Finding]:
    """Compare transfers in progress with bytes moved over the last seconds, and look for pairs that fell silent."""
    yield from _silent(ctx)
    for unit in ctx.units(Role.DECODE):
        usual = ctx.ask.mean(unit, "kv_transfer_seconds").value or 0.0
        window = Window(max(ctx.view.now.start_s, ctx.view.at_s - max(STALL_S, SLOWEST * usual)), ctx.view.at_s)
        least = ctx.ask.highest(unit, "transfer_queue_depth", 0.0, window)
        moved = ctx.ask.increase(unit, "kv_transfer_bytes", window)
        if not least.above(0) or moved.value is None or moved.value > 0:
            yield from _was_cut(ctx, unit)
            continue
        failed = ctx.ask.increase(unit, "kv_transfer_failures", window)
        if failed.above(0):
            yield clear("network-partition", f"transfers to {unit} end, by failing", ctx.scope(unit))
            continue
        found = wire(ctx, unit)
        if found.moves:
            yield clear("network-partition", f"{found.port:.2g} bytes/s reach {unit}'s ports", ctx.scope(unit))
            continue
        for_ = [
            ctx.saw("transfer_queue_depth", unit, least, 0.0, basis="physics", ratio=STRONG, group="in-progress"),
            ctx.saw("kv_transfer_bytes", unit, moved, None, basis="physics", ratio=STRONG, group="bytes"),
        ]
        deferred = ctx.ask.level(unit, "queue_depth_deferred", window)
        if deferred.above(0):
            for_.append(
                ctx.saw("queue_depth_deferred", unit, deferred, 0.0, basis="physics", ratio=MODERATE, group="deferred")
            )
        yield _finding(unit, _ends(ctx, unit), tuple(for_))


def _silent(ctx: Context) -> Iterator[Finding]:
    """Yield pairs over which no hand-off ends any more while their receiver always has transfers under way."""
    for pair in silent(ctx):
        least = ctx.ask.highest(pair.dst, "transfer_queue_depth", 0.0, Window(ctx.view.at_s - STALL_S, ctx.view.at_s))
        failed = ctx.ask.increase(pair.dst, "kv_transfer_failures")
        usual = ctx.ask.mean(pair.dst, "kv_transfer_seconds").value or 0.0
        if SLOWEST * usual > ctx.view.now.span_s:
            continue
        if not least.above(0) or failed.above(0) or ctx.is_down(pair.src) or ctx.is_down(pair.dst):
            continue
        now, former = ctx.ask.rate(pair.key, "handoff_seconds"), past.rate(ctx, pair.key, "handoff_seconds")
        for_ = (
            ctx.saw("handoff_seconds.rate", pair.key, now, former, basis="history", ratio=STRONG, group="bytes"),
            ctx.saw("transfer_queue_depth", pair.dst, least, 0.0, basis="physics", ratio=STRONG, group="in-progress"),
        )
        yield _finding(pair.dst, (ctx.scope(pair.key),), for_)


def _was_cut(ctx: Context, unit: str) -> Iterator[Finding]:
    """Yield a stall that is over: transfers were under way and for a while neither KV nor a byte of the port moved.

    A slow link fills its port all the while; without the port's own counter a stall that is over looks like one.
    """
    if not picture(ctx).ttft_high or ctx.is_down(unit) or ctx.ask.increase(unit, "kv_transfer_failures").above(0):
        return
    former = past.rate(ctx, unit, "rdma_received_bytes")
    if not former:
        return
    for _, series in ctx.ask.parts(unit, "transfer_queue_depth"):
        times = (
            series.t[(series.t >= ctx.view.now.start_s) & (series.t <= ctx.view.at_s)]
            if isinstance(series, Series)
            else ()
        )
        for end_s in times:
            part = Window(float(end_s) - STALL_S, float(end_s))
            if any(ctx.ask.increase(unit, s, part).value != 0.0 for s in ("kv_transfer_bytes", "rdma_received_bytes")):
                continue
            least = ctx.ask.highest(unit, "transfer_queue_depth", 0.0, part)
            if not _told(ctx, unit, part) or not least.above(0):
                continue
            seen = ctx.saw("transfer_queue_depth", unit, least, 0.0, basis="physics", ratio=STRONG, group="in-progress")
            silent_s = f"none for {STALL_S:.0f} s until {ctx.view.at_s - float(end_s):.0f} s ago"
            port = ctx.saw("rdma_received_bytes", unit, silent_s, former, basis="history", ratio=STRONG, group="bytes")
            yield _finding(unit, _ends(ctx, unit), (seen, port))
            return


def _told(ctx: Context, unit: str, part: Window) -> bool:
    """Whether every worker gave its transfers all through a part: one that does not answer tells nothing of them."""
    given = [
        int(np.count_nonzero((series.t >= part.start_s) & (series.t <= part.end_s)))
        for _, series in ctx.ask.parts(unit, "transfer_queue_depth")
        if isinstance(series, Series)
    ]
    return bool(given) and min(given) * ctx.view.interval_s >= STALL_S


def _finding(unit: str, scopes: tuple[Scope, ...], for_: tuple[Weighed, ...]) -> Finding:
    return Finding(
        status=Status.FIRED,
        cause="network-partition",
        scopes=scopes,
        for_=for_,
        symptoms=(Symptom.TTFT,),
        next=(
            f"test the KV path from {unit} to each prefill worker; the HTTP path may work while the KV path does not",
            "look at UCX_NET_DEVICES and the state of that device on both sides",
        ),
        runbooks=("kv-transfer-relief",),
        do_not=(
            DoNot(action="scale-out-decode", why="decode waits for KV, not for capacity"),
            DoNot(
                action="shorten-timeout",
                why="requests finish after the link returns; until the lease runs out nothing is lost",
            ),
        ),
    )


def _ends(ctx: Context, unit: str) -> tuple[Scope, ...]:
    """Return the pair that nothing comes over where only one leads to a worker, else the worker."""
    senders = ctx.cluster.of_role(Role.PREFILL)
    if len(senders) == 1 and ctx.cluster.get(unit) is not None:
        return (Scope("pair", str(Pair(senders[0].id, unit))),)
    return (ctx.scope(unit),)
