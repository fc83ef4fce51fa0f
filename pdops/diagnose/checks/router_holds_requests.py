"""Requests stand still in the router while the engines behind it are idle."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import DECISIVE, STRONG, CheckMeta, Finding, Status, Tier, clear, not_known
from pdops.model.cluster import CLIENT, ROUTER, Role
from pdops.model.frame import EventKind
from pdops.model.report import DoNot, Symptom
from pdops.model.series import Reading, Window

META = CheckMeta(
    id="router/holds-requests",
    title="The router holds requests and hands none over, and the engines are idle",
    causes=("router-stale-state", "router-fault"),
    needs=("running_requests", "request_success", "request_failure", "queue_depth"),
    tier=Tier.PAIR,
    explains=("cold-start", "router-imbalance", "health-check-misfire", "breaker-open", "telemetry-gap"),
    alert="PDRouterHolds",
    panel="routing/held",
)

_BEHIND = (Role.PREFILL, Role.DECODE, Role.KVSTORE)
STILL_S = 10.0
"""Seconds without an end, with all engines idle, after which it is no pause: two scrapes at 5 s, and far longer than a
hand-over takes."""

_DO_NOT = (
    DoNot(action="scale-out-prefill", why="the engines are idle"),
    DoNot(action="scale-out-decode", why="the engines are idle"),
    DoNot(action="raise-retries", why="a retry waits in the same router"),
)


def check(ctx: Context) -> Iterator[Finding]:
    """Ask whether requests were in the router all the time, and not one ended, and no engine had any."""
    still = Window(ctx.view.at_s - STILL_S, ctx.view.at_s)
    held = ctx.ask.highest(ROUTER, "running_requests", 0.0, still)
    if held.value is None:
        return
    if not held.above(0):
        yield clear("router-stale-state", "the router was without requests a moment ago")
        return
    ended = _ended(ctx, still)
    if ended.value is None:
        yield not_known("router-stale-state", "request_success", ended.why or "nobody tells whether requests end")
        return
    if ended.above(0):
        yield clear("router-stale-state", f"{ended.value:.0f} requests ended")
        return
    away = next((w.id for w in ctx.cluster.of_role(*_BEHIND) if ctx.is_down(w.id)), None)
    if away is not None:
        yield clear("router-stale-state", f"{away} is away, and requests may stand because of it")
        return
    busy = {unit: _busy(ctx, unit, still) for role in (Role.PREFILL, Role.DECODE) for unit in ctx.units(role)}
    silent = next((unit for unit, level in busy.items() if not level.known), None)
    if silent is not None:
        why = f"what {silent} holds is not told, and requests may stand there"
        yield not_known("router-stale-state", "running_requests", why, scope=ctx.scope(silent))
        return
    idle = [u for u, level in busy.items() if level.value == 0.0]
    if len(idle) < len(busy) or not busy:
        # Requests that stand in an engine are that engine's.
        return
    for_ = [
        ctx.saw("running_requests", ROUTER, held, 0.0, basis="physics", ratio=STRONG, group="held"),
        ctx.saw("request_success", CLIENT, ended, "some", basis="physics", ratio=STRONG, group="ended"),
        *(ctx.saw("running_requests", u, busy[u], "some", basis="physics", ratio=STRONG, group="idle") for u in idle),
    ]
    restarts = [
        event
        for worker in ctx.cluster.of_role(Role.ROUTER)
        for event in ctx.events((EventKind.RESTART,), worker=worker.id)
    ]
    if restarts:
        ago = ctx.view.at_s - restarts[0].t_s
        said = f"restarted {ago:.0f} s ago"
        for_.append(ctx.saw("events", restarts[0].worker, said, None, basis="log", ratio=DECISIVE, group="restart"))
    yield Finding(
        status=Status.FIRED,
        cause="router-stale-state" if restarts else "router-fault",
        scopes=tuple(ctx.scope(w.id) for w in ctx.cluster.of_role(Role.ROUTER)),
        for_=tuple(for_),
        symptoms=(Symptom.ERRORS,),
        next=(
            "read the router's own list of workers (pdops router: /ready and /admin/workers) beside who is up",
            "register the workers that are missing there; do not restart the engines",
        ),
        runbooks=("routing-rebalance",),
        do_not=_DO_NOT,
    )


def _ended(ctx: Context, still: Window) -> Reading:
    """Return how many requests ended for clients lately, well or not."""
    good, bad = ctx.ask.increase(CLIENT, "request_success", still), ctx.ask.increase(CLIENT, "request_failure", still)
    if good.value is None or good.above(0):
        return good
    if bad.value is None:
        return bad
    return Reading(good.value + bad.value, n=good.n)


def _busy(ctx: Context, unit: str, still: Window) -> Reading:
    """Return the most requests an engine had lately, running or waiting."""
    running, waiting = (ctx.ask.highest(unit, signal, 1.0, still) for signal in ("running_requests", "queue_depth"))
    if running.value is None or waiting.value is None:
        return running if running.value is None else waiting
    return Reading(running.value + waiting.value, n=running.n)
