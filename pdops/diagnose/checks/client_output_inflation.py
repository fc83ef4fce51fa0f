"""Outputs grew and eat decode's KV and slots."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.load import GREW, LENGTH, arrivals
from pdops.diagnose.symptoms import picture
from pdops.model.cluster import CLIENT, Role
from pdops.model.report import DoNot, Symptom, Verdict
from pdops.model.series import Reading, Window

META = CheckMeta(
    id="client/output-inflation",
    title="Outputs grew and eat decode's KV and slots",
    causes=("output-inflation",),
    needs=(
        "output_length",
        "generated_tokens",
        "kv_cache_usage",
        "preemptions",
        "running_requests",
        "request_success",
    ),
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
_FEW = 10.0
"""Requests that end in a window below which tokens per ending say nothing."""
_SURE = 2.33
"""Standard errors that chance may add, of an exponential spread."""
_ENDED = ("output_length", "request_success")
MORE = 0.1
"""Growth of the KV share in use that is more than noise."""


def check(ctx: Context) -> Iterator[Finding]:
    """Join longer outputs with fuller decode workers; longer outputs that fit are no fault."""
    # Clients do not choose workers: what grew has grown for the pool, and a single worker has few requests to tell by.
    for unit in ctx.pools(Role.DECODE):
        now, before = ctx.ask.mean(unit, "output_length"), past.mean(ctx, unit, "output_length")
        longer = _ended(ctx, unit, now, before) or _unended(ctx, unit)
        if longer is None:
            if before and now.value is not None:
                because = f"outputs are {now.value:.0f} tokens, before {before:.0f}"
                yield clear("output-inflation", because, ctx.scope(unit))
            continue
        eats = _eats(ctx, unit)
        if not eats:
            yield clear(
                "output-inflation", f"outputs grew to {longer.evidence.observed:.0f} tokens and fit", ctx.scope(unit)
            )
            continue
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


def _ended(ctx: Context, pool: str, now: Reading, before: float | None) -> Weighed | None:
    """Return that outputs that ended are longer than those of before."""
    if not before or not now.above((BIASED if _fewer_end(ctx) else GREW) * before):
        return None
    return ctx.saw("output_length.mean", pool, now, before, basis="history", ratio=STRONG, group=LENGTH)


def _unended(ctx: Context, pool: str) -> Weighed | None:
    """Return that more tokens are made for each request that ends.

    Long outputs are not in a mean of those that ended until they end. Tokens made over requests ended counts what is still
    being made too: it is the estimate of a mean from censored lengths that spread like an exponential (total time on test
    over failures), and does not depend on how fast tokens are made.
    """
    now, before = (_made_per_end(ctx, pool, w) for w in (ctx.view.now, ctx.view.base))
    if now is None or before is None or now[0] <= GREW * (1.0 + _SURE / now[1] ** 0.5) * before[0]:
        return None
    seen = Reading(now[0], n=int(now[1]))
    signal = "generated_tokens per request_success"
    return ctx.saw(signal, pool, seen, before[0], basis="history", ratio=STRONG, group=LENGTH)


def _made_per_end(ctx: Context, pool: str, window: Window | None) -> tuple[float, float] | None:
    """Return tokens made per request that ended, and how many ended."""
    if window is None:
        return None
    made = ctx.ask.increase(pool, "generated_tokens", window)
    ended = next((r for s in _ENDED if (r := ctx.ask.increase(pool, s, window)).known), None)
    if ended is None or made.value is None or made.missing or ended.missing or (ended.value or 0.0) < _FEW:
        return None
    return made.value / (ended.value or 1.0), ended.value or 1.0


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
