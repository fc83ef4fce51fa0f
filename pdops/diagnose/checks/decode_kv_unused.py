"""KV arrives on decode and is computed there again, since prompts grew."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, CheckMeta, Finding, Status, Tier, Weighed
from pdops.model.cluster import Role
from pdops.model.report import DoNot
from pdops.model.series import Window

META = CheckMeta(
    id="decode/kv-unused",
    title="Decode is sent KV and computes the same prompts again",
    causes=("staging-buffer-exhausted",),
    needs=(
        "local_prefill_tokens",
        "external_kv_tokens",
        "kv_transfer_bytes",
        "kv_transfer_failures",
        "prompt_length",
    ),
    tier=Tier.PAIR,
    explains=("silent-local-prefill", "prefill-undersized", "decode-undersized", "workload-shift", "hash-mismatch"),
    alert="PDKvUnused",
    panel="decode/local-prefill-share",
)

LONGER = 1.5
"""Prompts half as long again are no longer those a buffer was sized for."""
RECOMPUTED = 0.05
"""Share of prompt tokens that decode computes itself from which PD does not work as intended (as in
router/silent-local-prefill)."""
_TOKENS = ("local_prefill_tokens", "external_kv_tokens")


def check(ctx: Context) -> Iterator[Finding]:
    """Join longer prompts with decode workers that began to compute what they are still sent."""
    longer = _longer(ctx)
    for unit in ctx.units(Role.DECODE) if longer else ():
        seen = _unused(ctx, unit)
        if not seen:
            continue
        yield Finding(
            status=Status.FIRED,
            cause="staging-buffer-exhausted",
            scopes=(ctx.scope(unit),),
            for_=(*seen, *longer),
            next=(
                "send prompts of growing length by hand: the length from which decode computes them names the buffer",
                "compare the KV bytes of the longest prompt with the transfer buffer on both sides; enlarge the buffer, "
                "or cap prompts at the router",
            ),
            runbooks=("kv-transfer-relief",),
            do_not=(
                DoNot(action="scale-out-decode", why="decode computes what it was sent; it does not lack capacity"),
                DoNot(
                    action="enable-chunked-prefill", why="chunks of one prompt can wait for each other in a full buffer"
                ),
            ),
        )


def _unused(ctx: Context, unit: str) -> tuple[Weighed, ...]:
    """Return that no transfer fails, and bytes come in where they are told, while decode computes what they were for."""
    now, before = _share(ctx, unit, None), _share(ctx, unit, ctx.view.base)
    moved, failed = ctx.ask.increase(unit, "kv_transfer_bytes"), ctx.ask.increase(unit, "kv_transfer_failures")
    if now is None or before is None or before > RECOMPUTED or now <= RECOMPUTED:
        return ()
    if moved.value == 0.0 or failed.value != 0.0:
        return ()
    computed = ctx.saw("local_prefill_tokens", unit, now, before, basis="history", ratio=MODERATE, group="computed")
    if not moved.known:
        return (computed,)
    return (computed, ctx.saw("kv_transfer_bytes", unit, moved, None, basis="physics", ratio=MODERATE, group="arrives"))


def _share(ctx: Context, unit: str, window: Window | None) -> float | None:
    local, external = (ctx.ask.increase(unit, s, window).value for s in _TOKENS)
    if local is None or external is None or local + external <= 0:
        return None
    return local / (local + external)


def _longer(ctx: Context) -> tuple[Weighed, ...]:
    for unit in ctx.units(Role.PREFILL):
        now, before = ctx.ask.mean(unit, "prompt_length"), past.mean(ctx, unit, "prompt_length")
        if before and now.above(LONGER * before):
            return (ctx.saw("prompt_length.mean", unit, now, before, basis="history", ratio=MODERATE, group="length"),)
    return ()
