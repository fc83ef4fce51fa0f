"""Split TTFT into its stages, each from the place that measures it."""

from __future__ import annotations

from pdops.diagnose.context import Context, once
from pdops.model.cluster import PAIR_PREFIX, Role
from pdops.model.report import Bound, TtftStage
from pdops.model.series import Reading, Window, unknown

STAGES = ("prefill_queue", "prefill_compute", "handoff", "kv_fetch_wait", "kv_transfer", "decode_wait")


@once
def split(ctx: Context) -> tuple[TtftStage, ...]:
    """Return the mean seconds per stage over the judged window.

    prefill_queue and prefill_compute come from the prefill engines; hand-off is the router's time from prefill answer to
    first token less the decode engine's own TTFT. On decode the engine's queue time contains the pull, so decode_wait is
    what is left of it after waiting for and doing the transfer. Waiting to start a transfer has no histogram; by
    Little's law it is the mean number that wait over the rate at which transfers end. A transfer in progress while none
    ends gives a lower bound.
    """
    readings = stages(ctx)
    values = [r.value for r in readings.values()]
    total = sum(v for v in values if v is not None) if all(v is not None for v in values) else None
    return tuple(
        TtftStage(
            stage=name,
            seconds=_published(reading),
            share=reading.value / total if total and reading.value is not None and reading.bound is None else None,
            why=reading.why,
        )
        for name, reading in readings.items()
    )


def stages(ctx: Context, window: Window | None = None) -> dict[str, Reading]:
    """Return the mean seconds per stage over a window, by default the judged one; see `split` for where each is from."""
    return dict(zip(STAGES, _readings(ctx, window), strict=True))


def _published(reading: Reading) -> float | Bound | None:
    if reading.value is None:
        return None
    return Bound(reading.value, reading.bound) if reading.bound else reading.value


def _readings(ctx: Context, window: Window | None) -> tuple[Reading, ...]:
    prefill_queue = _mean(ctx, Role.PREFILL, "queue_seconds", window)
    prefill_compute = _mean(ctx, Role.PREFILL, "prefill_seconds", window)
    decode_ttft = _mean(ctx, Role.DECODE, "ttft_seconds", window)
    transfer = _transfer(ctx, window)
    fetch_wait = _fetch_wait(ctx, window)
    return (
        prefill_queue,
        prefill_compute,
        _handoff(ctx, decode_ttft, window),
        fetch_wait,
        transfer,
        _decode_wait(ctx, fetch_wait, transfer, window),
    )


def _mean(ctx: Context, role: Role, signal: str, window: Window | None) -> Reading:
    answers = [ctx.ask.mean(pool, signal, window) for pool in ctx.pools(role)]
    known = [a for a in answers if a.value is not None]
    if not known:
        return answers[0] if answers else unknown(f"no {role} pool")
    n = sum(a.n for a in known)
    value = sum((a.value or 0.0) * a.n for a in known) / n if n else sum(a.value or 0.0 for a in known) / len(known)
    return Reading(value, n=n)


def _handoff(ctx: Context, decode_ttft: Reading, window: Window | None) -> Reading:
    pairs = [
        scope
        for scope, signal in ctx.view.series
        if scope.startswith(PAIR_PREFIX) and signal.partition(".")[0] == "handoff_seconds"
    ]
    answers = [ctx.ask.mean(scope, "handoff_seconds", window) for scope in sorted(set(pairs))]
    known = [a for a in answers if a.value is not None]
    if not pairs:
        return unknown("no router gives handoff_seconds; add one with --target router=URL")
    if not known:
        return unknown("no hand-off in the window")
    if decode_ttft.value is None:
        return unknown("the decode engines' own TTFT is not known, so hand-off cannot be told from decode")
    n = sum(a.n for a in known)
    mean = sum((a.value or 0.0) * max(a.n, 1) for a in known) / max(n, len(known))
    return Reading(max(0.0, mean - decode_ttft.value), n=n)


def _transfer(ctx: Context, window: Window | None) -> Reading:
    mean = _mean(ctx, Role.DECODE, "kv_transfer_seconds", window)
    if not mean.known:
        # In push mode prefill issues the transfer and measures it.
        mean = _mean(ctx, Role.PREFILL, "kv_transfer_seconds", window)
    if mean.known:
        return mean
    for pool in ctx.pools(Role.DECODE):
        least = ctx.ask.highest(pool, "transfer_queue_depth", 0.0, window)
        if least.value is not None and least.value > 0:
            return Reading(_seen_s(ctx, window), "ge", n=least.n)
    return mean


def _seen_s(ctx: Context, window: Window | None) -> float:
    """Return the seconds of a window that were really seen."""
    window = window or ctx.view.now
    return min(window.span_s, window.end_s - ctx.view.start_s)


def _fetch_wait(ctx: Context, window: Window | None) -> Reading:
    waiting = 0.0
    ended = 0.0
    for pool in ctx.pools(Role.DECODE):
        level = ctx.ask.level(pool, "decode_prealloc_queue_depth", window)
        if level.value is None:
            return level
        waiting += level.value
        rate = ctx.ask.rate(pool, "kv_transfer_seconds", window)
        if rate.value is None and level.value > 0:
            return rate
        ended += rate.value or 0.0
    if waiting == 0.0:
        return Reading(0.0)
    if ended <= 0.0:
        return Reading(_seen_s(ctx, window), "ge")
    return Reading(waiting / ended)


def _decode_wait(ctx: Context, fetch_wait: Reading, transfer: Reading, window: Window | None) -> Reading:
    queue = _mean(ctx, Role.DECODE, "queue_seconds", window)
    if queue.value is None:
        return queue
    if transfer.value is None or fetch_wait.value is None:
        return unknown("decode's queue time contains the KV pull, and the pull itself is not known")
    if transfer.bound or fetch_wait.bound:
        return unknown("the KV pull is known only as a bound")
    return Reading(max(0.0, queue.value - transfer.value - fetch_wait.value), n=queue.n)
