"""Transfers are under way and no byte moves."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier
from pdops.model.cluster import Role
from pdops.model.report import DoNot, Symptom
from pdops.model.series import Window

META = CheckMeta(
    id="transfer/stalled",
    title="KV transfers are in progress and no byte moves",
    causes=("network-partition",),
    needs=("transfer_queue_depth", "kv_transfer_bytes", "queue_depth_deferred"),
    tier=Tier.PAIR,
    explains=(
        "decode-undersized",
        "prefill-undersized",
        "backpressure-to-prefill",
        "kv-lease-expiry",
        "kv-strand-prefill",
        "transport-slow",
    ),
    alert="PDKvTransferStalled",
    panel="kv-transfer/in-progress",
)

STALL_S = 15.0
"""A cut KV link moved no failure counter for 70 s on a real pair: in-progress stayed above zero and no byte moved."""


def check(ctx: Context) -> Iterator[Finding]:
    """Compare transfers in progress with bytes moved over the last seconds."""
    window = Window(max(ctx.view.now.start_s, ctx.view.at_s - STALL_S), ctx.view.at_s)
    for unit in ctx.units(Role.DECODE):
        least = ctx.ask.highest(unit, "transfer_queue_depth", 0.0, window)
        moved = ctx.ask.increase(unit, "kv_transfer_bytes", window)
        if not least.above(0) or moved.value is None or moved.value > 0:
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
        yield Finding(
            status=Status.FIRED,
            cause="network-partition",
            scopes=(ctx.scope(unit),),
            for_=tuple(for_),
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
