"""A worker restarts again and again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pdops.diagnose.context import Context
from pdops.diagnose.finding import DECISIVE, MODERATE, STRONG, WEAK, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.symptoms import picture
from pdops.model.cluster import Role, Worker
from pdops.model.frame import EventKind
from pdops.model.report import DoNot, Symptom
from pdops.model.series import Series

META = CheckMeta(
    id="startup/restart-loop",
    title="A worker restarts again and again",
    causes=("engine-crash",),
    needs=(
        "process_start_seconds",
        "running_requests",
        "kv_transfer_failures",
        "request_success",
        "request_failure",
        "ttft_seconds",
        "itl_seconds",
    ),
    tier=Tier.PRESENCE,
    explains=("prefill-down", "decode-down", "cold-start", "kv-strand-prefill", "kv-lease-expiry"),
    alert="PDRestartLoop",
    panel="overview/restarts",
)

RESTARTS = 2
LOOP_S = 900.0
"""Restarts of one worker within a quarter of an hour that make a loop; a planned restart happens once."""
SURELY = 3
"""From this many on a loop is hardly anything else."""
EVEN = 0.25
"""Spread of the pauses over their mean below which they are even (from public incidents: a native crash does not follow the
load)."""
TOGETHER_S = 30.0
"""Restarts of both sides this close, each time, are one event: an engine is back some ten seconds after it died at the
earliest, and pauses of loops are minutes."""
STEADY = 0.3
"""Relative change of running requests below which the load did not change."""


def check(ctx: Context) -> Iterator[Finding]:
    """Count restarts by worker, from events and from start times that changed."""
    starts = {w.id: _starts(ctx, w.id) for w in ctx.cluster.workers}
    loops = {name: times for name, times in starts.items() if len(times) >= RESTARTS}
    if not loops:
        told = [w for w in ctx.cluster.workers if ctx.ask.has(w.id, "process_start_seconds")]
        if told and len(told) == len(ctx.cluster.workers):
            most = max(len(times) for times in starts.values())
            yield clear("engine-crash", "a worker restarted once" if most else "no worker restarted")
        return
    for_: list[Weighed] = []
    against: list[Weighed] = []
    for name, times in loops.items():
        for_ += _evidence(ctx, name, times)
        worker = ctx.cluster.get(name)
        if worker is not None:
            against += (*_planned(ctx, worker, times), *_transfers_fail(ctx, name), *_serves(ctx, name, times))
    against += _together(ctx, loops)
    yield Finding(
        status=Status.FIRED,
        cause="engine-crash",
        scopes=tuple(ctx.scope(name) for name in loops),
        for_=tuple(for_),
        against=tuple(against),
        symptoms=(Symptom.STARTUP,),
        next=(
            f"read the last log lines and the exit status of {', '.join(list(loops)[:3])} before the next restart",
            "see whether each restart follows a restart of a peer; then it is the peer's state that kills it",
            "look at the kernel log for a process that was ended for memory",
        ),
        runbooks=("restart-worker",),
        do_not=(
            DoNot(action="raise-retries", why="each retry meets the same crash, and strands KV on the other side"),
        ),
    )


def _starts(ctx: Context, worker: str) -> tuple[float, ...]:
    """Return when a worker restarted within the last quarter of an hour, oldest first."""
    since = ctx.view.at_s - LOOP_S
    events = sorted({e.t_s for e in ctx.events((EventKind.RESTART,), LOOP_S, worker)})
    changed: list[float] = []
    for series in ctx.view.series.get((worker, "process_start_seconds"), ()):
        if isinstance(series, Series):
            moved = np.flatnonzero(np.abs(np.diff(series.v)) > 1.0) + 1
            changed += [float(series.t[i]) for i in moved if series.t[i] >= since]
    return tuple(events) if len(events) >= len(changed) else tuple(sorted(changed))


def _evidence(ctx: Context, worker: str, times: tuple[float, ...]) -> list[Weighed]:
    n = len(times)
    ratio = DECISIVE if n >= SURELY else STRONG
    seen = f"{n} restarts in {LOOP_S / 60:.0f} min"
    found = [ctx.saw("process_start_seconds", worker, seen, "none", basis="log", ratio=ratio, group="restarts")]
    pauses = np.diff(times)
    if len(pauses) >= 2 and float(np.ptp(pauses)) < EVEN * float(np.mean(pauses)):
        seen = f"every {float(np.mean(pauses)):.0f} s"
        found.append(ctx.saw("process_start_seconds", worker, seen, None, basis="log", ratio=WEAK, group="even"))
    now = ctx.ask.level(worker, "running_requests")
    before = ctx.before(lambda s, w: ctx.ask.level(s, "running_requests", w), worker)
    if now.value is not None and before is not None and abs(now.value - before) <= STEADY * max(before, 1.0):
        found.append(ctx.saw("running_requests", worker, now, before, basis="history", ratio=WEAK, group="load"))
    return found


def _planned(ctx: Context, worker: Worker, times: tuple[float, ...]) -> list[Weighed]:
    """Return rollouts that account for the restarts: one for each, of this worker or its pool."""
    rollouts = ctx.events((EventKind.ROLLOUT, EventKind.CONFIG_CHANGE), LOOP_S, worker.id)
    if len(rollouts) < len(times):
        return []
    seen = f"{len(rollouts)} rollouts or configuration changes"
    return [ctx.saw("process_start_seconds", worker.id, seen, None, basis="log", ratio=MODERATE, group="planned")]


def _serves(ctx: Context, worker: str, times: tuple[float, ...]) -> list[Weighed]:
    """Return that a worker which restarted twice serves and clients lack nothing: two may be a change and its return."""
    if len(times) >= SURELY or ctx.is_down(worker):
        return []
    served, seen = ctx.ask.increase(worker, "request_success"), picture(ctx)
    well = seen.errors.value == 0.0 and seen.ttft.known and not seen.ttft_high
    if not (served.above(0) and well):
        return []
    return [ctx.saw("request_success", worker, served, "none", basis="physics", ratio=STRONG, group="serves")]


def _transfers_fail(ctx: Context, worker: str) -> list[Weighed]:
    """Return that transfers of the worker fail as well: then it may die of them, as decode did in several public reports."""
    found = []
    for key in (worker, *(p.key for p in ctx.pairs_with("kv_transfer_failures") if worker in (p.src, p.dst))):
        failed = ctx.ask.increase(key, "kv_transfer_failures")
        if failed.above(0):
            found.append(
                ctx.saw("kv_transfer_failures", key, failed, 0.0, basis="physics", ratio=MODERATE, group="transfers")
            )
    return found


def _together(ctx: Context, loops: dict[str, tuple[float, ...]]) -> list[Weighed]:
    """Return that workers of both sides fall at the same moments, each time: then it is something between them."""
    sides = [
        {name: times for name, times in loops.items() if ctx.role_of(name) is role}
        for role in (Role.PREFILL, Role.DECODE)
    ]
    for first, ours in sides[0].items():
        for second, theirs in sides[1].items():
            if all(min(abs(a - b) for b in theirs) <= TOGETHER_S for a in ours):
                seen = f"each time within {TOGETHER_S:.0f} s of {second}"
                return [
                    ctx.saw("process_start_seconds", first, seen, None, basis="log", ratio=MODERATE, group="together")
                ]
    return []
