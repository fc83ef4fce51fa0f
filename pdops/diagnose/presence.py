"""Judge a pool's workers that do not answer or did not a moment ago; shared by the two worker-down checks."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import DECISIVE, MODERATE, STRONG, Finding, Status, Weighed, clear, not_known
from pdops.diagnose.rollout import away_by_plan, silences
from pdops.diagnose.symptoms import ERROR_SHARE, picture
from pdops.model.cluster import CLIENT, Role
from pdops.model.frame import EventKind
from pdops.model.report import DoNot, Symptom
from pdops.model.series import Window
from pdops.model.view import Presence

IN_FLIGHT_S = 10.0
"""Requests that were past a worker when it went away still end well for about this long; longer outputs are rare."""
SERVED = 0.5
"""Requests that end well, over what did before, up to which they are stragglers and not service."""
_PLANNED = (EventKind.ROLLOUT, EventKind.SCALE_IN, EventKind.SCALE_OUT, EventKind.CONFIG_CHANGE)


def workers_down(ctx: Context, role: Role, cause: str, do_not: tuple[DoNot, ...]) -> Iterator[Finding]:
    """Yield one finding about all workers of a role that are away, or were in the judged window while clients suffer.

    A scrape that fails is strong evidence but not more: the engine may serve while its metrics page does not. It becomes
    decisive with a down event, or when requests or transfers fail at the same time. Requests that still succeed although
    the whole role is silent speak against it. Where nothing at all answers no role is accused.
    """
    members = ctx.cluster.of_role(role)
    if not members or ctx.nothing_answers:
        return
    away = [w.id for w in members if ctx.is_down(w.id)]
    lately = {} if away else _lately(ctx, role)
    if lately:
        yield _was_away(ctx, cause, lately)
        return
    if not away:
        # Nobody answers for a worker without data: that is for telemetry/no-data to say.
        if all(ctx.has_data(w.id) for w in members):
            yield clear(cause, f"{len(members)} of {len(members)} {role} workers answer")
        return
    failures = ctx.ask.increase(CLIENT, "request_failure")
    if len(away) < len(members) and all(away_by_plan(ctx, w) for w in away):
        fails = _fails_on(ctx, away)
        planned = f"{', '.join(away)} is away as planned"
        if fails is None:
            fix = "read the router's request counters"
            yield not_known(cause, "request_failure", f"{planned}; whether requests fail meanwhile is not known", fix)
        elif not fails:
            yield clear(cause, f"{planned}, and the others serve")
        if not fails:
            return
    for_ = [_presence(ctx, worker) for worker in away]
    against: list[Weighed] = []
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


def _fails_on(ctx: Context, away: list[str]) -> bool | None:
    """Whether requests go on to fail after those in flight at the last one that went away had their time; None if unknown."""
    since = [s for w in away if (s := ctx.health(w).since_s) is not None]
    start_s = max([ctx.view.now.start_s, *(s + IN_FLIGHT_S for s in since)])
    if start_s >= ctx.view.now.end_s:
        return False
    left = Window(start_s, ctx.view.now.end_s)
    if ctx.ask.increase(CLIENT, "request_failure", left).value == 0:
        return False
    share = ctx.error_share(left)
    return share.above(ERROR_SHARE) if share.known else None


def _served_since(ctx: Context, away: list[str]) -> list[Weighed]:
    """Return requests that succeeded after the last of them went away, and after those in flight then had their time."""
    since = [s for w in away if (s := ctx.health(w).since_s) is not None]
    now = ctx.view.now
    start_s = max([now.start_s, *(s + IN_FLIGHT_S for s in since)])
    if start_s >= now.end_s:
        return []
    left = Window(start_s, now.end_s)
    good = ctx.ask.increase(CLIENT, "request_success", left)
    before = past.rate(ctx, CLIENT, "request_success")
    if not good.above(0) or (before and ctx.ask.rate(CLIENT, "request_success", left).below(SERVED * before)):
        return []
    return [ctx.saw("request_success", CLIENT, good, 0.0, basis="physics", ratio=STRONG, group="served")]


def _lately(ctx: Context, role: Role) -> dict[str, tuple[float, float]]:
    """Return workers that were silent for a part of the judged window with when that began and ended, in Unix seconds.

    Only where clients suffer, others answered meanwhile and nothing was planned.
    """
    seen = picture(ctx)
    if not (seen.ttft_high or seen.itl_high or Symptom.ERRORS in seen.symptoms or Symptom.GOODPUT in seen.symptoms):
        return {}
    found = {}
    for worker in ctx.cluster.of_role(role):
        silent = _silence(ctx, worker.id)
        if silent is not None and not ctx.events(_PLANNED, worker=worker.id):
            found[worker.id] = silent
    others = [w.id for r in (Role.PREFILL, Role.DECODE) for w in ctx.cluster.of_role(r) if w.id not in found]
    # Who is silent together with everybody else was not asked.
    return found if others and all(_silence(ctx, w) is None for w in others) else {}


def _silence(ctx: Context, worker: str) -> tuple[float, float] | None:
    """Return the longest silence of a worker that ended in the judged window."""
    ended = [(start, end) for start, end in silences(ctx, worker) if end > ctx.view.now.start_s]
    return max(ended, key=lambda s: s[1] - s[0], default=None)


def _was_away(ctx: Context, cause: str, silent: dict[str, tuple[float, float]]) -> Finding:
    failures = ctx.ask.increase(CLIENT, "request_failure")
    seen = picture(ctx)
    felt = ctx.saw("ttft_seconds", CLIENT, seen.ttft, seen.ttft_before, basis="history", ratio=MODERATE, group="felt")
    if failures.above(0):
        felt = ctx.saw("request_failure", CLIENT, failures, 0.0, basis="physics", ratio=MODERATE, group="felt")
    return Finding(
        status=Status.FIRED,
        cause=cause,
        scopes=tuple(ctx.scope(w) for w in silent),
        for_=(
            *(
                ctx.saw(
                    "scrape_age_seconds",
                    w,
                    f"silent for {until_s - since_s:.0f} s until {ctx.view.at_s - until_s:.0f} s ago",
                    "answers",
                    basis="probe",
                    ratio=STRONG,
                    group="presence",
                )
                for w, (since_s, until_s) in silent.items()
            ),
            felt,
        ),
        against=_failing_since(ctx, max(until_s for _, until_s in silent.values())),
        symptoms=(Symptom.ERRORS,) if failures.above(0) else (),
        next=tuple(
            f"{w} is back: read its log of {ctx.view.at_s - since_s:.0f} s ago for why it ended or hung"
            for w, (since_s, _) in list(silent.items())[:3]
        ),
        runbooks=("restart-worker",),
    )


def _failing_since(ctx: Context, back_s: float) -> tuple[Weighed, ...]:
    """Return requests that fail although the worker has been back for longer than those in flight then need."""
    start_s = back_s + IN_FLIGHT_S
    if start_s >= ctx.view.at_s:
        return ()
    left = Window(start_s, ctx.view.at_s)
    failed, good = (ctx.ask.increase(CLIENT, f"request_{how}", left) for how in ("failure", "success"))
    if failed.value is None or good.value is None or failed.value <= good.value:
        return ()
    return (ctx.saw("request_failure", CLIENT, failed, 0.0, basis="physics", ratio=DECISIVE, group="since"),)


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
