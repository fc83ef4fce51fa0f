"""Judge a pool's workers that do not answer or have just come back; shared by the two worker-down checks."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import DECISIVE, MODERATE, STRONG, Finding, Status, Weighed, clear
from pdops.model.cluster import CLIENT, Role
from pdops.model.frame import EventKind
from pdops.model.report import DoNot, Symptom
from pdops.model.series import Window
from pdops.model.view import Presence

IN_FLIGHT_S = 10.0
"""Requests that were past a worker when it went away still end well for about this long; longer outputs are rare."""


def workers_down(ctx: Context, role: Role, cause: str, do_not: tuple[DoNot, ...]) -> Iterator[Finding]:
    """Yield one finding about all workers of a role that are away.

    A scrape that fails is strong evidence but not more: the engine may serve while its metrics page does not. It becomes
    decisive with a down event, or when requests or transfers fail at the same time. Requests that still succeed although
    the whole role is silent speak against it.
    """
    members = ctx.cluster.of_role(role)
    away = [w.id for w in members if ctx.is_down(w.id)]
    if not members:
        return
    if not away:
        # Nobody answers for a worker without data: that is for telemetry/no-data to say.
        if all(ctx.has_data(w.id) for w in members):
            yield clear(cause, f"{len(members)} of {len(members)} {role} workers answer")
        return
    for_ = [_presence(ctx, worker) for worker in away]
    against: list[Weighed] = []
    failures = ctx.ask.increase(CLIENT, "request_failure")
    good = ctx.ask.increase(CLIENT, "request_success")
    if failures.above(0):
        for_.append(
            ctx.saw("request_failure", CLIENT, failures, 0.0, basis="physics", ratio=MODERATE, group="failures")
        )
    for unit in ctx.units(Role.DECODE):
        broken = ctx.ask.increase(unit, "kv_transfer_failures")
        if role is Role.PREFILL and broken.above(0):
            for_.append(
                ctx.saw("kv_transfer_failures", unit, broken, 0.0, basis="physics", ratio=MODERATE, group="transfers")
            )
    if len(away) == len(members) and good.above(0) and not failures.above(0):
        against += _served_since(ctx, away)
    yield Finding(
        status=Status.FIRED,
        cause=cause,
        scopes=tuple(ctx.scope(w) for w in away),
        for_=tuple(for_),
        against=tuple(against),
        symptoms=(Symptom.ERRORS,) if failures.above(0) else (),
        next=tuple(_next(ctx, w) for w in away[:3]),
        runbooks=("restart-worker", "cold-start"),
        do_not=do_not,
    )


def _served_since(ctx: Context, away: list[str]) -> list[Weighed]:
    """Return requests that succeeded after the last of them went away, and after those in flight then had their time."""
    since = [s for w in away if (s := ctx.health(w).since_s) is not None]
    now = ctx.view.now
    start_s = max([now.start_s, *(s + IN_FLIGHT_S for s in since)])
    if start_s >= now.end_s:
        return []
    good = ctx.ask.increase(CLIENT, "request_success", Window(start_s, now.end_s))
    if not good.above(0):
        return []
    return [ctx.saw("request_success", CLIENT, good, 0.0, basis="physics", ratio=STRONG, group="served")]


def _presence(ctx: Context, worker: str) -> Weighed:
    health = ctx.health(worker)
    seen = health.why or "went down"
    told = bool(ctx.events((EventKind.DOWN,), worker=worker))
    # An address that never answered may just be the wrong one.
    weight = DECISIVE if told and health.presence is not Presence.NEVER else STRONG
    return ctx.saw("scrape_age_seconds", worker, seen, "answers", basis="probe", ratio=weight, group="presence")


def _next(ctx: Context, worker: str) -> str:
    health = ctx.health(worker)
    since = f", for {ctx.view.at_s - health.since_s:.0f} s" if health.since_s is not None else ""
    return f"look at {worker}'s process and last log lines ({health.why or 'reported down'}{since})"
