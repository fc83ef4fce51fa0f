"""KV transfers fail: after a peer's restart, at one pair, or on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pdops.diagnose.context import Context
from pdops.diagnose.finding import DECISIVE, MODERATE, STRONG, WEAK, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.loglines import Match, evidence, matches, naming
from pdops.diagnose.matrix import silent
from pdops.diagnose.mismatch import compare
from pdops.diagnose.options import TENSOR_PARALLEL, Effect
from pdops.model.cluster import Pair, Role
from pdops.model.frame import EventKind
from pdops.model.report import DoNot, Scope, Symptom

META = CheckMeta(
    id="transfer/failures",
    title="KV transfers fail",
    causes=("peer-restart-stale-state", "transport-error", "rdma-link-config", "mem-registration", "timeout-too-short"),
    needs=("kv_transfer_failures", "process_start_seconds", "kv_transfer_expired", "handoff_seconds"),
    tier=Tier.PAIR,
    # KV whose transfer failed stays on prefill until its lease ends.
    explains=(
        "transport-slow",
        "backpressure-to-prefill",
        "cold-start",
        "kv-lease-expiry",
        "kv-strand-prefill",
        # What fails is over soon, so its worker looks idle and gets more.
        "router-imbalance",
    ),
    alert="PDKvTransferFailing",
    panel="kv-transfer/failures",
)

NAMED = ("rdma-link-config", "mem-registration", "timeout-too-short")
"""Causes of failed transfers that no counter tells apart and a line of the transport does."""
LOOP = 2
"""Restarts of one worker within ten minutes that make it a loop; stale state is left behind by a peer that came back once."""

LOOP_CAP = 0.6
"""Most while every restart belongs to a loop: the failures may be what ends the workers, and not what a restart left."""

REFUSED_CAP = 0.45
"""Most while the sides are set up so that they refuse each other: that alone explains every failure."""


def check(ctx: Context) -> Iterator[Finding]:
    """Count failures, by pair where the source tells pairs, and look for a peer that restarted before them."""
    told = ctx.pairs_with("kv_transfer_failures")
    pairs = [pair.key for pair in told if ctx.ask.has(pair.key, "kv_transfer_failures")]
    units = pairs or [*ctx.units(Role.DECODE), *ctx.units(Role.PREFILL)]
    readings = {u: ctx.ask.increase(u, "kv_transfer_failures") for u in units}
    failing = {u: r for u, r in readings.items() if r.above(0)}
    if not failing:
        if any(r.known for r in readings.values()):
            yield clear("transport-error", "no KV transfer failed")
        return
    direct = tuple(
        ctx.saw("kv_transfer_failures", u, r, 0.0, basis="physics", ratio=STRONG, group="failures")
        for u, r in failing.items()
    )
    scopes = tuple(dict.fromkeys(scope for u in failing for scope in _ends(ctx, u)))
    restarts = _restarts(ctx)
    loops = bool(restarts) and all(w.ratio < DECISIVE for w in restarts)
    refused = _refused(ctx) if restarts else ()
    if restarts:
        yield Finding(
            status=Status.FIRED,
            cause="peer-restart-stale-state",
            against=refused,
            scopes=scopes,
            for_=direct + restarts,
            symptoms=(Symptom.ERRORS,),
            next=(
                "restart the peer that did not restart, or drain the pair: it may keep the other side's old registration",
                "send one canary through each pair of the worker that restarted",
            ),
            runbooks=("restart-pair", "kv-transfer-relief"),
            do_not=(
                DoNot(
                    action="restart-victim",
                    why="the worker that restarted is fresh; its surviving peer holds the stale state",
                ),
            ),
            cap=REFUSED_CAP if refused else LOOP_CAP if loops else 0.97,
        )
    named = naming(matches(ctx), NAMED)
    for cause in sorted({m.cause for m in named}):
        yield Finding(
            status=Status.FIRED,
            cause=cause,
            scopes=scopes,
            for_=(*direct, *(evidence(ctx, m) for m in named if m.cause == cause)),
            symptoms=(Symptom.ERRORS,),
            next=tuple(dict.fromkeys(m.spec.first_check for m in named if m.cause == cause)),
            do_not=(
                DoNot(action="raise-retries", why="each retry fails for the same reason until the set-up is right"),
            ),
        )
    clean = [u for u, r in readings.items() if r.known and not r.above(0)]
    local: tuple[Weighed, ...] = ()
    if pairs and clean and len(failing) < len(pairs) / 2:
        local = tuple(
            ctx.saw("kv_transfer_failures", u, readings[u], 0.0, basis="peer", ratio=MODERATE, group="others")
            for u in clean[:3]
        )
    yield Finding(
        status=Status.FIRED,
        cause="transport-error",
        scopes=scopes,
        for_=direct + local,
        against=(*restarts, *(_instead(ctx, m) for m in named)),
        symptoms=(Symptom.ERRORS,),
        next=(
            "read the failure_type in decode's log: handshake, setup, transfer or notification",
            "this counter also holds handshake and notification failures: check the side channel address and ports",
        ),
        runbooks=("kv-transfer-relief",),
    )


def _instead(ctx: Context, match: Match) -> Weighed:
    """Return a line that names a narrower cause, as evidence against the wide one."""
    return replace(evidence(ctx, match), ratio=STRONG)


def _refused(ctx: Context) -> tuple[Weighed, ...]:
    """Return options for which the sides refuse each other: then it is what they came back with, not what a peer remembers."""
    apart = [
        d
        for d in compare(ctx).apart
        if d.option.effect is Effect.REFUSED and d.ratio >= STRONG and d.option is not TENSOR_PARALLEL
    ]
    return tuple(
        ctx.saw(d.option.name, None, d.sample, "the same", basis="config", ratio=DECISIVE, group="refused")
        for d in apart[:2]
    )


def _restarts(ctx: Context) -> tuple[Weighed, ...]:
    found = []
    for role in (Role.PREFILL, Role.DECODE):
        for worker in ctx.cluster.of_role(role):
            restarts = ctx.events((EventKind.RESTART,), worker=worker.id)
            # A worker that restarts again and again may as well die of the failures.
            ratio = DECISIVE if len(restarts) < LOOP else WEAK
            for event in restarts[:1]:
                seen = f"restart {ctx.view.at_s - event.t_s:.0f} s ago"
                found.append(
                    ctx.saw("process_start_seconds", worker.id, seen, None, basis="log", ratio=ratio, group="restart")
                )
    return tuple(found)


def _ends(ctx: Context, unit: str) -> tuple[Scope, ...]:
    """Return the pair that fails, where hand-offs or the KV left behind tell which of a receiver's it is; else the unit."""
    if ctx.role_of(unit) is not Role.DECODE or ctx.cluster.get(unit) is None:
        return (ctx.scope(unit),)
    mute = [p for p in silent(ctx) if p.dst == unit]
    left = {w.id: ctx.ask.increase(w.id, "kv_transfer_expired") for w in ctx.cluster.of_role(Role.PREFILL)}
    holding = [w for w, r in left.items() if r.above(0)]
    if not mute and len(holding) == 1 and all(r.known for r in left.values()):
        mute = [Pair(holding[0], unit)]
    return tuple(Scope("pair", str(p)) for p in mute) if 0 < len(mute) < max(2, len(left)) else (ctx.scope(unit),)
