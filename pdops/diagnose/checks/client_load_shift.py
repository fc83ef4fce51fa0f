"""More requests or longer prompts than before, and a pool that cannot keep up with them."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed
from pdops.diagnose.load import GREW, WAITING, longer, more, size, waiting
from pdops.diagnose.symptoms import picture
from pdops.model.cluster import Role
from pdops.model.report import DoNot, Symptom, Verdict

META = CheckMeta(
    id="client/load-shift",
    title="Clients send more or longer prompts than the pools can take",
    causes=("traffic-burst", "workload-shift"),
    needs=(
        "queue_depth",
        "queue_seconds",
        "prefill_seconds",
        "queue_depth_capacity",
        "preemptions",
        "request_success",
        "prompt_length",
        "prompt_tokens",
    ),
    tier=Tier.STAGE,
    explains=(
        "prefill-undersized",
        "decode-undersized",
        "decode-kv-exhaustion",
        "backpressure-to-prefill",
        "batch-cap-too-low",
        "mixed-length-jitter",
        "ratio-wrong",
        "router-fault",
        "router-imbalance",
        "prefix-cache-collapse",
        "router-index-loss",
    ),
    no_alert="what comes is no fault of the cluster; its effects have their own alerts (PDPrefillQueueing, PDItlHigh)",
)


def check(ctx: Context) -> Iterator[Finding]:
    """Join pools under pressure with growth of what clients send."""
    queues, computes = _pressed(ctx), _computes(ctx)
    for cause, grown, pressed in (
        ("traffic-burst", more(ctx), queues),
        ("workload-shift", longer(ctx), queues or computes),
    ):
        if grown and pressed:
            yield Finding(
                status=Status.FIRED,
                cause=cause,
                for_=(*pressed, *grown),
                verdict=Verdict.OVERLOAD,
                symptoms=(Symptom.TTFT,),
                next=(
                    "see who sends more or longer prompts, and whether it lasts longer than a scale-out takes",
                    "size pools by tokens, not by requests; shed or queue at the router meanwhile",
                ),
                runbooks=("ttft-prefill-relief", "scale-out-prefill"),
                do_not=(DoNot(action="raise-retries", why="retries are more of what there is too much of"),),
            )


def _computes(ctx: Context) -> tuple[Weighed, ...]:
    """Return that computing prompts alone takes that much longer that first tokens are late, whether or not others wait."""
    if not picture(ctx).ttft_high:
        return ()
    found = []
    for pool in ctx.pools(Role.PREFILL):
        now, before = ctx.ask.mean(pool, "prefill_seconds"), past.mean(ctx, pool, "prefill_seconds")
        if before and now.above(GREW * before):
            found.append(
                ctx.saw("prefill_seconds.mean", pool, now, before, basis="history", ratio=MODERATE, group="computing")
            )
    return tuple(found)


def _pressed(ctx: Context) -> tuple[Weighed, ...]:
    """Return queues that are deep and were not, and preemptions that were none."""
    found = []
    for role, signal, least in (
        (Role.PREFILL, "queue_depth", WAITING),
        (Role.DECODE, "queue_depth_capacity", WAITING / 2),
    ):
        for unit in ctx.units(role):
            seen, depth, before = signal, ctx.ask.level(unit, signal), past.level(ctx, unit, signal)
            if role is Role.PREFILL:
                (seen, depth), before = waiting(ctx, unit), ctx.before(lambda s, w: waiting(ctx, s, w)[1], unit)
            if depth.above(max(least * size(ctx, unit), GREW * (before or 0.0))):
                found.append(ctx.saw(seen, unit, depth, before, basis="history", ratio=STRONG, group="queue"))
    for unit in ctx.units(Role.DECODE):
        preempted, before = ctx.ask.rate(unit, "preemptions"), past.rate(ctx, unit, "preemptions")
        if preempted.above(GREW * (before or 0.0)):
            found.append(
                ctx.saw("preemptions.rate", unit, preempted, before, basis="history", ratio=MODERATE, group="queue")
            )
    return tuple(found)
