"""Requests on decode wait for KV, and nobody tells why none comes."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import WEAK, CheckMeta, Finding, Status, Tier
from pdops.diagnose.load import GREW, WAITING, size
from pdops.model.cluster import CLIENT, Role
from pdops.model.report import DoNot, Symptom

META = CheckMeta(
    id="transfer/waits-unbounded",
    title="Requests wait for KV that does not come",
    causes=("no-timeout-hang",),
    needs=("queue_depth_deferred", "transfer_queue_depth", "kv_transfer_bytes", "request_timeouts"),
    tier=Tier.PAIR,
    alert="PDKvWaitUnbounded",
    panel="decode/deferred",
)


def check(ctx: Context) -> Iterator[Finding]:
    """Look for a deferred queue that grew where neither stages nor bytes tell what it waits for."""
    for unit in ctx.units(Role.DECODE):
        waiting, before = ctx.ask.level(unit, "queue_depth_deferred"), past.level(ctx, unit, "queue_depth_deferred")
        grew = waiting.above(max(WAITING * size(ctx, unit), GREW * (before or 0.0)))
        # Where stages of the fetch or moved bytes are told, other checks say more.
        if not grew or ctx.ask.level(unit, "transfer_queue_depth").known or _told(ctx, unit):
            continue
        # One weak vote: an address, a version, a request id or a dead peer make requests wait alike.
        for_ = [ctx.saw("queue_depth_deferred", unit, waiting, before, basis="history", ratio=WEAK, group="waits")]
        timeouts = ctx.ask.increase(CLIENT, "request_timeouts")
        if timeouts.above(0):
            for_.append(ctx.saw("request_timeouts", CLIENT, timeouts, 0.0, basis="physics", ratio=WEAK, group="waits"))
        yield Finding(
            status=Status.FIRED,
            cause="no-timeout-hang",
            scopes=(ctx.scope(unit),),
            for_=tuple(for_),
            symptoms=(Symptom.ERRORS,) if timeouts.above(0) else (),
            next=(
                f"take one request that waits on {unit} and look for the same request id in prefill's log: never seen, "
                "still computing, sent, or known there by another id",
                "run `pdops preflight`: tensor_parallel_size, connector and versions of both sides, and what each may be "
                "paired with",
                "bound the wait with the engine's own timeout once the cause is known; before, it only hides it",
            ),
            runbooks=("kv-transfer-relief",),
            do_not=(DoNot(action="scale-out-decode", why="decode waits for KV, not for capacity"),),
        )


def _told(ctx: Context, unit: str) -> bool:
    """Whether bytes are counted: they move, or none ever did."""
    return ctx.ask.increase(unit, "kv_transfer_bytes").known
