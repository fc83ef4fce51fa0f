"""Decode computes prompts itself: PD is bypassed and nobody notices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import DECISIVE, MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.limits import SHARE
from pdops.model.cluster import Role
from pdops.model.report import DoNot, Scope
from pdops.model.series import Reading, unknown

META = CheckMeta(
    id="router/silent-local-prefill",
    title="Decode workers do the prefill themselves",
    causes=("silent-local-prefill",),
    needs=("local_prefill_tokens", "external_kv_tokens", "kv_transfer_bytes", "preemptions"),
    tier=Tier.PAIR,
    explains=(
        "kv-lease-expiry",
        "kv-strand-prefill",
        "decode-undersized",
        "decode-slow-worker",
        "gpu-throttle",
        "ratio-wrong",
        "mixed-length-jitter",
    ),
    alert="PDSilentLocalPrefill",
    panel="decode/local-prefill-share",
)

MOSTLY = 0.5
AS_BEFORE = 0.8
"""KV that arrives, over what arrived before, from which prefill is not passed by: decode does not use what it is sent."""
_MIN_TOKENS = 100.0


def check(ctx: Context) -> Iterator[Finding]:
    """Divide what decode computed by what it computed or was sent."""
    shares = {u: _share(ctx, u) for u in ctx.units(Role.DECODE)}
    guilty = {u: r for u, r in shares.items() if r.above(SHARE)}
    if not guilty:
        known = [r.value for r in shares.values() if r.value is not None]
        if known:
            yield clear("silent-local-prefill", f"decode computed {max(known):.1%} of its prompt tokens")
        return
    for_: list[Weighed] = []
    against: list[Weighed] = []
    for unit, share in guilty.items():
        weight = DECISIVE if share.above(MOSTLY) else STRONG
        for_.append(ctx.saw("local_prefill_tokens", unit, share, SHARE, basis="physics", ratio=weight, group="share"))
        moved = ctx.ask.increase(unit, "kv_transfer_bytes")
        if moved.value == 0.0:
            for_.append(ctx.saw("kv_transfer_bytes", unit, moved, None, basis="physics", ratio=MODERATE, group="bytes"))
        arrived = past.rate(ctx, unit, "kv_transfer_bytes")
        arrives = ctx.ask.rate(unit, "kv_transfer_bytes")
        if share.above(MOSTLY) and arrived and arrives.above(AS_BEFORE * arrived):
            against.append(
                ctx.saw(
                    "kv_transfer_bytes.rate", unit, arrives, arrived, basis="history", ratio=STRONG, group="arrives"
                )
            )
        preempted = ctx.ask.increase(unit, "preemptions")
        if preempted.above(0):
            against.append(
                ctx.saw("preemptions", unit, preempted, 0.0, basis="physics", ratio=STRONG, group="recompute")
            )
    yield Finding(
        status=Status.FIRED,
        cause="silent-local-prefill",
        scopes=(*(ctx.scope(u) for u in guilty), *_router(ctx, guilty)),
        for_=tuple(for_),
        against=tuple(against),
        next=(
            "check that the router sends kv_transfer_params (or its prefill header) with the decode request",
            "check that the router sees ready prefill workers, and that the side channel address is reachable from decode",
        ),
        runbooks=("routing-rebalance",),
        do_not=(
            DoNot(
                action="scale-out-decode", why="decode is slow because it also does prefill; the cure is the hand-off"
            ),
            DoNot(action="scale-in-prefill", why="prefill looks idle only because requests bypass it"),
        ),
    )


def _router(ctx: Context, guilty: Iterable[str]) -> tuple[Scope, ...]:
    """Return the router where all of decode is passed by alike: it is what they share."""
    if set(guilty) != set(ctx.units(Role.DECODE)):
        return ()
    return tuple(ctx.scope(w.id) for w in ctx.cluster.of_role(Role.ROUTER))


def _share(ctx: Context, unit: str) -> Reading:
    local = ctx.ask.increase(unit, "local_prefill_tokens")
    external = ctx.ask.increase(unit, "external_kv_tokens")
    if local.value is None:
        return local
    if external.value is None:
        return external
    total = local.value + external.value
    return (
        Reading(local.value / total, n=local.n)
        if total >= _MIN_TOKENS
        else unknown("too few prompt tokens in the window")
    )
