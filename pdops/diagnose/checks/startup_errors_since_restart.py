"""Requests fail since a worker came back, and go on failing although it is there."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.symptoms import ERROR_SHARE
from pdops.model.cluster import CLIENT, Role
from pdops.model.frame import EventKind
from pdops.model.report import DoNot, Symptom
from pdops.model.series import Window

META = CheckMeta(
    id="startup/errors-since-restart",
    title="Requests have failed ever since a worker came back",
    causes=("peer-restart-stale-state",),
    needs=("request_failure", "request_success", "kv_transfer_failures", "process_start_seconds"),
    tier=Tier.PRESENCE,
    explains=("transport-error", "cold-start"),
    no_alert="it joins restarts with failing requests, and both have an alert of their own",
)

SETTLED_S = 60.0
"""After a start, requests in flight fail and first waves take 40 to 58 s (public incidents); what fails later is no start."""
ONCE = 1
"""A worker that restarts again and again fails requests by that alone."""
CAP = 0.9
"""Nobody has seen the state that was kept; the order of events says it."""


def check(ctx: Context) -> Iterator[Finding]:
    """Compare the share of failing requests before a single restart with that after the worker had time to settle."""
    before = ctx.error_share(ctx.view.base) if ctx.view.base is not None else None
    if before is None or before.value is None or before.value > ERROR_SHARE:
        return
    restarted = [(w.id, e) for role in (Role.PREFILL, Role.DECODE) for w, e in ctx.restarted(role)]
    if len(restarted) != 1 or ctx.events((EventKind.ROLLOUT, EventKind.CONFIG_CHANGE)):
        return
    ((name, event),) = restarted
    start_s = max(ctx.view.now.start_s, event.t_s + SETTLED_S)
    many = len(ctx.events((EventKind.RESTART,), worker=name)) > ONCE
    if many or ctx.is_down(name) or start_s >= ctx.view.at_s or _transfers_fail(ctx):
        return
    since = ctx.error_share(Window(start_s, ctx.view.at_s))
    if since.value is None:
        return
    if not since.above(ERROR_SHARE):
        yield clear("peer-restart-stale-state", f"{since.value:.1%} of requests failed since {name} came back")
        return
    seen = f"restart {ctx.view.at_s - event.t_s:.0f} s ago"
    yield Finding(
        status=Status.FIRED,
        cause="peer-restart-stale-state",
        scopes=(ctx.scope(name),),
        for_=(
            ctx.saw("process_start_seconds", name, seen, None, basis="log", ratio=MODERATE, group="restart"),
            ctx.saw("request_failure", CLIENT, since, before.value, basis="history", ratio=STRONG, group="failures"),
        ),
        against=_transfers_are_fine(ctx),
        symptoms=(Symptom.ERRORS,),
        next=(
            f"restart the peers that did not restart, one at a time: they may keep what {name} was before",
            f"send one canary through each pair of {name}; pairs without it should answer",
        ),
        runbooks=("restart-pair",),
        do_not=(
            DoNot(action="restart-victim", why=f"{name} is fresh; its peers hold the stale state"),
            DoNot(action="raise-retries", why="each retry meets the same stale peer"),
        ),
        cap=CAP,
    )


def _transfers_fail(ctx: Context) -> bool:
    """Whether failed transfers are counted: transfer/failures then says more than requests can."""
    return any(ctx.ask.increase(u, "kv_transfer_failures").above(0) for u in ctx.units(Role.DECODE))


def _transfers_are_fine(ctx: Context) -> tuple[Weighed, ...]:
    """Return that transfers are counted and none fails: then the peers do know each other."""
    readings = {u: ctx.ask.increase(u, "kv_transfer_failures") for u in ctx.units(Role.DECODE)}
    return tuple(
        ctx.saw("kv_transfer_failures", u, r, 0.0, basis="physics", ratio=STRONG, group="transfers")
        for u, r in readings.items()
        if r.known
    )
