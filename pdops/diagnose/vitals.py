"""What must be known of every worker before anybody can call a pool healthy, or be sure of a cause."""

from __future__ import annotations

from pdops.diagnose.context import Context, once
from pdops.model.cluster import Role, Worker, pool_key
from pdops.model.report import Missing
from pdops.model.view import Presence

VITAL = {Role.PREFILL: ("queue_depth", "running_requests"), Role.DECODE: ("running_requests", "kv_cache_usage")}
"""Without these nobody can call a pool healthy."""
PROGRESS = {Role.PREFILL: "prompt_tokens", Role.DECODE: "generated_tokens"}
"""What moves while a pool with requests works."""
LATENCY = "ttft_seconds"
"""With progress, what a scraped worker must give besides: a page of gauges alone tells of no slow or failed request."""
_STAND_INS = {
    "prompt_tokens": ("prompt_length", "request_success"),
    "generated_tokens": ("itl_seconds", "request_success"),
}
"""What moves as well while a pool works, the finest first."""


@once
def missing_vitals(ctx: Context) -> tuple[Missing, ...]:
    """Return what must be known before prefill and decode can be called healthy, and is not.

    Every worker that is there must give it, or the server that adds up its pool. Workers that do not answer at all are
    named by the checks that look for them.
    """
    found: list[Missing] = []
    for role in VITAL:
        members = ctx.cluster.of_role(role)
        if not ctx.units(role):
            why = f"no {role} worker gives data" if members else f"no {role} worker is known"
            found.append(Missing(signal=f"{role} pool", why=why, fix="" if members else f"add --target {role}=URL"))
            continue
        found.extend(m for r, m in _not_given(ctx) if r is role and not _stands_in(ctx, m))
        for unit in ctx.units(role):
            progress = _progress(ctx, unit, PROGRESS[role])
            if _is_stuck(ctx, unit, progress):
                found.append(_stuck(ctx, unit, progress))
    return tuple(found)


def blind(ctx: Context) -> bool:
    """Whether a worker that answers does not give what it is judged by."""
    return bool(_not_given(ctx))


@once
def _not_given(ctx: Context) -> tuple[tuple[Role, Missing], ...]:
    found: list[tuple[Role, Missing]] = []
    for role, signals in VITAL.items():
        for signal in (*signals, PROGRESS[role], LATENCY):
            for worker in ctx.cluster.of_role(role):
                asked = (Presence.UP, Presence.GIVEN) if signal in signals else (Presence.UP,)
                if ctx.health(worker.id).presence in asked and not _given(ctx, worker, signal):
                    scope = ctx.scope(worker.id)
                    found.append((role, Missing(signal=signal, why=f"{worker.id} does not give it", scope=scope)))
    return tuple(found)


def _stands_in(ctx: Context, lacking: Missing) -> bool:
    """Whether what a worker does not give is told by what else it counts.

    Its latencies are not: one slow worker is lost among the clients of all.
    """
    unit = lacking.scope.id if lacking.scope is not None else ""
    return _progress(ctx, unit, lacking.signal) != lacking.signal


def _progress(ctx: Context, unit: str, usual: str) -> str:
    """Return the signal that tells whether a worker or pool works: the usual one, unless only another is given."""
    return next((s for s in (usual, *_STAND_INS.get(usual, ())) if ctx.ask.increase(unit, s).known), usual)


def _is_stuck(ctx: Context, unit: str, progress: str) -> bool:
    """Whether requests were there all the time and not one token moved: nobody can call that sound."""
    held = [ctx.ask.highest(unit, signal, 0.0) for signal in ("running_requests", "queue_depth")]
    return any(r.above(0) for r in held) and ctx.ask.increase(unit, progress).value == 0.0


def _stuck(ctx: Context, unit: str, progress: str) -> Missing:
    scope = ctx.scope(unit)
    why = f"{scope} held requests through the whole window and {progress} did not move"
    return Missing(signal=progress, why=why, fix="look whether it hangs: health, log, one request by hand", scope=scope)


def _given(ctx: Context, worker: Worker, signal: str) -> bool:
    pool = pool_key(worker.pool)
    summed = any((pool, name) in ctx.view.series and ctx.ask.fresh(pool, name) for name in (signal, f"{signal}.rate"))
    return summed or ctx.ask.fresh(worker.id, signal)
