"""Outputs grew and eat decode's KV and slots."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.load import GREW, arrivals
from pdops.diagnose.symptoms import picture
from pdops.model.cluster import CLIENT, Role
from pdops.model.report import DoNot, Symptom, Verdict

META = CheckMeta(
    id="client/output-inflation",
    title="Outputs grew and eat decode's KV and slots",
    causes=("output-inflation",),
    needs=("output_length", "kv_cache_usage", "preemptions", "running_requests", "request_success"),
    tier=Tier.STAGE,
    explains=(
        "decode-undersized",
        "decode-kv-exhaustion",
        "backpressure-to-prefill",
        "mixed-length-jitter",
        "batch-cap-too-low",
        "ratio-wrong",
    ),
    alert="PDOutputInflation",
    panel="decode/output-length",
)

FULL = 0.8
"""KV in use on decode from which longer outputs leave no room for new requests."""
BIASED = 2.0
"""Growth that counts where fewer requests end than before. Those that still end were in the batch already, and what is found
in a batch is length-biased: 1 + cv² times as long, twice with lengths spread like an exponential."""
FEWER = 0.8
"""Requests that end, over those of before, below which they are such a choice."""
MORE = 0.1
"""Growth of the KV share in use that is more than noise."""


def check(ctx: Context) -> Iterator[Finding]:
    """Join longer outputs with fuller decode workers; longer outputs that fit are no fault."""
    # Clients do not choose workers: what grew has grown for the pool, and a single worker has few requests to tell by.
    for unit in ctx.pools(Role.DECODE):
        now, before = ctx.ask.mean(unit, "output_length"), past.mean(ctx, unit, "output_length")
        if not before or now.value is None:
            continue
        if not now.above((BIASED if _fewer_end(ctx) else GREW) * before):
            yield clear("output-inflation", f"outputs are {now.value:.0f} tokens, before {before:.0f}", ctx.scope(unit))
            continue
        eats = _eats(ctx, unit)
        if not eats:
            yield clear("output-inflation", f"outputs grew to {now.value:.0f} tokens and fit", ctx.scope(unit))
            continue
        longer = ctx.saw("output_length.mean", unit, now, before, basis="history", ratio=STRONG, group="length")
        yield Finding(
            status=Status.FIRED,
            cause="output-inflation",
            scopes=(ctx.scope(unit),),
            for_=(longer, *eats),
            against=_more_requests(ctx),
            verdict=Verdict.OVERLOAD,
            symptoms=(Symptom.ITL,) if picture(ctx).itl_high else (),
            next=(
                "see which client or model setting made outputs longer (reasoning effort, max_tokens, stop words)",
                "cap max_tokens for that client, or add decode workers for the new length",
            ),
            runbooks=("itl-decode-relief", "scale-out-decode"),
            do_not=(
                DoNot(action="scale-out-prefill", why="prompts did not change; more prefill only fills decode faster"),
                DoNot(action="evict-kv", why="evicted requests are computed again and are as long the second time"),
            ),
        )


def _fewer_end(ctx: Context) -> bool:
    now, before = ctx.ask.rate(CLIENT, "request_success"), past.rate(ctx, CLIENT, "request_success")
    return before is not None and before > 0 and now.below(FEWER * before)


def _eats(ctx: Context, pool: str) -> tuple[Weighed, ...]:
    found = []
    for unit in ctx.units(Role.DECODE):
        usage, before = ctx.ask.level(unit, "kv_cache_usage"), past.level(ctx, unit, "kv_cache_usage")
        if usage.above(FULL) or (before is not None and usage.above(before + MORE)):
            found.append(ctx.saw("kv_cache_usage", unit, usage, before, basis="history", ratio=MODERATE, group="kv"))
        preempted = ctx.ask.increase(unit, "preemptions")
        if preempted.above(0):
            found.append(ctx.saw("preemptions", unit, preempted, 0.0, basis="physics", ratio=MODERATE, group="kv"))
    running, ran = ctx.ask.level(pool, "running_requests"), past.level(ctx, pool, "running_requests")
    if ran and running.above(1.3 * ran):
        found.append(ctx.saw("running_requests", pool, running, ran, basis="history", ratio=MODERATE, group="slots"))
    return tuple(found)


def _more_requests(ctx: Context) -> tuple[Weighed, ...]:
    comes = arrivals(ctx)
    if comes is None or not comes.grew:
        return ()
    signal = f"{comes.signal}.rate"
    return (ctx.saw(signal, comes.scope, comes.now, comes.before, basis="history", ratio=MODERATE, group="arrivals"),)
