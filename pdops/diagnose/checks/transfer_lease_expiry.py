"""Finished KV stays on prefill until its lease runs out."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import DECISIVE, MODERATE, STRONG, WEAK, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.symptoms import ERROR_SHARE
from pdops.model.cluster import CLIENT, Role
from pdops.model.report import DoNot, Layer, Scope

META = CheckMeta(
    id="transfer/lease-expiry",
    title="Prefill frees KV that decode never pulled",
    causes=("kv-strand-prefill", "kv-lease-expiry"),
    needs=(
        "kv_transfer_expired",
        "client_aborts",
        "request_timeouts",
        "queue_depth_deferred",
        "kv_cache_usage",
        "process_start_seconds",
        "request_failure",
        "kv_transfer_failures",
    ),
    tier=Tier.PAIR,
    explains=("prefill-undersized", "backpressure-to-prefill", "workload-shift", "traffic-burst", "cold-start"),
    alert="PDKvLeaseExpired",
    panel="kv-transfer/expired",
)

_VALIDATE = (
    "read the status of the failed requests: what decode refuses before it pulls (template, model name, length) should be "
    "rejected at the router, before prefill"
)
_DO_NOT = (
    DoNot(action="scale-out-prefill", why="prefill is full of KV nobody pulls; more prefill strands more of it"),
    DoNot(action="raise-retries", why="each retry strands another copy of the same KV on prefill"),
)


def check(ctx: Context) -> Iterator[Finding]:
    """Count expiries, and tell a reader that went away from one that came too late."""
    expired = {u: r for u in ctx.units(Role.PREFILL) if (r := ctx.ask.increase(u, "kv_transfer_expired")).above(0)}
    if not expired:
        if any(ctx.ask.increase(u, "kv_transfer_expired").known for u in ctx.units(Role.PREFILL)):
            yield clear("kv-lease-expiry", "no KV lease expired on prefill")
        return
    direct = tuple(
        ctx.saw("kv_transfer_expired", u, r, 0.0, basis="physics", ratio=STRONG, group="expired")
        for u, r in expired.items()
    )
    scopes = tuple(ctx.scope(u) for u in expired)
    gone, late = _reader_gone(ctx), _reader_late(ctx)
    refused = () if gone or late else _refused(ctx)
    gone += refused
    yield Finding(
        status=Status.FIRED,
        cause="kv-strand-prefill",
        layer=Layer.TRANSFER,
        scopes=(_refusing(ctx) if refused else ()) or scopes,
        for_=direct + gone,
        against=late if not gone else (),
        next=(
            "find who should have pulled: decode restarts or crashes, router timeouts and client aborts between prefill and decode",
            "compare the router's timeout with prefill p99 plus the wait for a decode slot",
            *((_VALIDATE,) if refused else ()),
        ),
        runbooks=("kv-transfer-relief", "restart-worker"),
        do_not=_DO_NOT,
    )
    yield Finding(
        status=Status.FIRED,
        cause="kv-lease-expiry",
        layer=Layer.TRANSFER,
        scopes=scopes,
        for_=direct + late,
        against=gone if not late else (),
        next=(
            "look at decode's deferred queue and KV fetch stages: what makes it pull late",
            "set kv_lease_duration above the longest wait for a decode slot plus the transfer",
        ),
        runbooks=("kv-transfer-relief", "backpressure-break"),
        do_not=_DO_NOT,
    )


def _reader_gone(ctx: Context) -> tuple[Weighed, ...]:
    found = []
    for worker, event in ctx.restarted(Role.DECODE):
        seen = f"{event.kind} {ctx.view.at_s - event.t_s:.0f} s ago"
        found.append(
            ctx.saw("process_start_seconds", worker.id, seen, None, basis="log", ratio=DECISIVE, group="reader")
        )
    for signal, ratio in (("client_aborts", STRONG), ("request_timeouts", STRONG)):
        for scope in (CLIENT, *ctx.units(Role.PREFILL)):
            grown = ctx.ask.increase(scope, signal)
            if grown.above(0):
                found.append(ctx.saw(signal, scope, grown, 0.0, basis="physics", ratio=ratio, group="reader"))
    return tuple(found)


def _refused(ctx: Context) -> tuple[Weighed, ...]:
    """Return that requests fail although no transfer does and decode is not behind: then decode refuses them unread."""
    errors = ctx.error_share()
    failed = [ctx.ask.increase(u, "kv_transfer_failures") for u in ctx.units(Role.DECODE)]
    if not errors.above(ERROR_SHARE) or not failed or any(r.value != 0.0 for r in failed):
        return ()
    return (ctx.saw("request_failure", CLIENT, errors, ERROR_SHARE, basis="physics", ratio=MODERATE, group="reader"),)


def _refusing(ctx: Context) -> tuple[Scope, ...]:
    """Return the decode workers that count failed requests, or the pools where all of several do."""
    asked = ctx.units(Role.DECODE)
    found = [u for u in asked if ctx.ask.increase(u, "request_failure").above(0)]
    if len(found) > 1 and len(found) == len(asked):
        return tuple(ctx.scope(p) for p in ctx.pools(Role.DECODE))
    return tuple(ctx.scope(u) for u in found)


def _reader_late(ctx: Context) -> tuple[Weighed, ...]:
    found = []
    for unit in ctx.units(Role.DECODE):
        waiting = ctx.ask.level(unit, "queue_depth_deferred")
        if waiting.above(1):
            found.append(
                ctx.saw("queue_depth_deferred", unit, waiting, 1.0, basis="physics", ratio=MODERATE, group="late")
            )
        usage = ctx.ask.level(unit, "kv_cache_usage")
        if usage.above(0.9):
            found.append(ctx.saw("kv_cache_usage", unit, usage, 0.9, basis="physics", ratio=WEAK, group="full"))
    return tuple(found)
