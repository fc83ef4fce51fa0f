"""More requests or longer prompts than before, and a pool that cannot keep up with them."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed
from pdops.diagnose.load import GREW, WAITING, longer, more, size
from pdops.model.cluster import Role
from pdops.model.report import DoNot, Symptom, Verdict

META = CheckMeta(
    id="client/load-shift",
    title="Clients send more or longer prompts than the pools can take",
    causes=("traffic-burst", "workload-shift"),
    needs=(
        "queue_depth",
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
    pressed = _pressed(ctx)
    if not pressed:
        return
    for cause, grown in (("traffic-burst", more(ctx)), ("workload-shift", longer(ctx))):
        if grown:
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


def _pressed(ctx: Context) -> tuple[Weighed, ...]:
    """Return queues that are deep and were not, and preemptions that were none."""
    found = []
    for role, signal, least in (
        (Role.PREFILL, "queue_depth", WAITING),
        (Role.DECODE, "queue_depth_capacity", WAITING / 2),
    ):
        for unit in ctx.units(role):
            waiting, before = ctx.ask.level(unit, signal), past.level(ctx, unit, signal)
            if waiting.above(max(least * size(ctx, unit), GREW * (before or 0.0))):
                found.append(ctx.saw(signal, unit, waiting, before, basis="history", ratio=STRONG, group="queue"))
    for unit in ctx.units(Role.DECODE):
        preempted, before = ctx.ask.rate(unit, "preemptions"), past.rate(ctx, unit, "preemptions")
        if preempted.above(GREW * (before or 0.0)):
            found.append(
                ctx.saw("preemptions.rate", unit, preempted, before, basis="history", ratio=MODERATE, group="queue")
            )
    return tuple(found)
