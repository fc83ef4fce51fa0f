"""Prompts are larger than the buffer their KV passes through, or that buffer is full."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.preflight import amount
from pdops.model.cluster import CLIENT, Role, pool_key
from pdops.model.report import DoNot

META = CheckMeta(
    id="transfer/staging-buffer",
    title="Prompts do not fit through the transfer buffer",
    causes=("staging-buffer-exhausted",),
    needs=(
        "staging_buffer_usage",
        "prompt_length",
        "gpu_mem_used_bytes",
        "kv_cache_usage",
        "kv_transfer_failures",
        "request_failure",
    ),
    tier=Tier.PAIR,
    explains=("transport-error", "prefill-undersized", "gpu-oom"),
    no_alert="the size of the buffer is configuration, which no metric carries",
)

FULL = 0.95
"""Share of the buffer in use, all the time, above which the next prompt waits for it."""
MORE_MEMORY = 1.03
"""GPU memory over what it was: an engine takes its KV pool at the start, so growth is something beside the pool."""
TOKENS = ("max_tokens_in_buffer",)
_CAP = 0.45
"""Most while nothing breaks: several engines have a slower way round a small buffer."""


def check(ctx: Context) -> Iterator[Finding]:
    """Compare the longest hundredth of prompts with the buffer, and look at what breaks when they do not fit."""
    fits: list[str] = []
    for worker in ctx.cluster.of_role(Role.PREFILL, Role.DECODE):
        direct = (*_too_long(ctx, worker.id, worker.pool), *_full(ctx, worker.id))
        if not direct:
            if amount(ctx, worker.id, *TOKENS) is not None and _longest(ctx, worker.id, worker.pool) is not None:
                fits.append(worker.id)
            continue
        breaks = _breaks(ctx, worker.id)
        yield Finding(
            status=Status.FIRED,
            cause="staging-buffer-exhausted",
            scopes=(ctx.scope(worker.id),),
            for_=(*direct, *breaks),
            next=(
                "set the transfer buffer above the longest prompt that is let in, or cap prompts at the router below it",
                "see whether failures stop for prompts shorter than the buffer: then it is not the network",
            ),
            runbooks=("kv-transfer-relief",),
            do_not=(DoNot(action="scale-out-prefill", why="each prefill worker has the same buffer"),),
            cap=0.97 if breaks else _CAP,
        )
    if fits:
        yield clear("staging-buffer-exhausted", f"prompts fit into the buffer of {', '.join(fits[:3])}")


def _longest(ctx: Context, worker: str, pool: str) -> float | None:
    for scope in (worker, pool_key(pool), *ctx.pools(Role.PREFILL)):
        found = ctx.ask.quantile(scope, "prompt_length", 0.99)
        if found.value is not None:
            return found.value
    return None


def _too_long(ctx: Context, worker: str, pool: str) -> tuple[Weighed, ...]:
    limit, longest = amount(ctx, worker, *TOKENS), _longest(ctx, worker, pool)
    if limit is None or longest is None or longest <= limit:
        return ()
    return (ctx.saw("prompt_length.p99", worker, longest, limit, basis="config", ratio=STRONG, group="length"),)


def _full(ctx: Context, worker: str) -> tuple[Weighed, ...]:
    used = ctx.ask.highest(worker, "staging_buffer_usage", 0.0)
    if not used.above(FULL):
        return ()
    return (ctx.saw("staging_buffer_usage", worker, used, FULL, basis="physics", ratio=STRONG, group="full"),)


def _breaks(ctx: Context, worker: str) -> tuple[Weighed, ...]:
    found = []
    for signal, scope in (("kv_transfer_failures", worker), ("request_failure", CLIENT)):
        failed = ctx.ask.increase(scope, signal)
        if failed.above(0):
            found.append(ctx.saw(signal, scope, failed, 0.0, basis="physics", ratio=MODERATE, group="breaks"))
    most, before = ctx.ask.highest(worker, "gpu_mem_used_bytes"), past.level(ctx, worker, "gpu_mem_used_bytes")
    pool, pool_before = ctx.ask.level(worker, "kv_cache_usage"), past.level(ctx, worker, "kv_cache_usage")
    steady = pool.value is None or pool_before is None or pool.value <= pool_before + 0.1
    if before and steady and most.above(MORE_MEMORY * before):
        found.append(
            ctx.saw("gpu_mem_used_bytes", worker, most, before, basis="history", ratio=MODERATE, group="memory")
        )
    return tuple(found)
