"""Requests wait on prefill for a rendezvous with decode that is not reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.load import GREW, WAITING, size
from pdops.model.cluster import CLIENT, Role
from pdops.model.report import DoNot, Layer, Symptom

META = CheckMeta(
    id="startup/bootstrap-wait",
    title="Prefill and decode do not find each other in time",
    causes=("bootstrap-timeout",),
    needs=(
        "prefill_queue_depth",
        "decode_prealloc_queue_depth",
        "transfer_queue_depth",
        "request_timeouts",
        "request_failure",
        "gpu_util",
    ),
    tier=Tier.PAIR,
    explains=("prefill-undersized", "timeout-too-short", "traffic-burst", "workload-shift"),
    alert="PDBootstrapWaiting",
    panel="prefill/bootstrap-queue",
)

IDLE_GPU = 0.3
"""GPU busy below this with requests waiting means that compute is not what they wait for."""
_QUIET_CAP = 0.45
"""Most while no request times out or fails: a queue that is served in the end is a load."""


def check(ctx: Context) -> Iterator[Finding]:
    """Join requests that wait for the rendezvous with timeouts, and see whether decode's own admission is behind."""
    queues = {u: ctx.ask.level(u, "prefill_queue_depth") for u in ctx.units(Role.PREFILL)}
    deep = {u: r for u, r in queues.items() if r.above(_limit(ctx, u, "prefill_queue_depth"))}
    if not deep:
        known = [r.value for r in queues.values() if r.value is not None]
        if known:
            yield clear("bootstrap-timeout", f"at most {max(known):.1f} requests wait for the rendezvous")
        return
    lost = _lost(ctx)
    full, sending = _grown(ctx, "decode_prealloc_queue_depth"), _grown(ctx, "transfer_queue_depth")
    yield Finding(
        status=Status.FIRED,
        cause="bootstrap-timeout",
        scopes=(*(ctx.scope(u) for u in deep), *(w.evidence.scope for w in full if w.evidence.scope)),
        layer=Layer.DECODE if full else None,
        for_=(
            *(
                ctx.saw(
                    "prefill_queue_depth",
                    u,
                    r,
                    past.level(ctx, u, "prefill_queue_depth"),
                    basis="history",
                    ratio=STRONG,
                    group="bootstrap",
                )
                for u, r in deep.items()
            ),
            *lost,
            *full,
            *_idle(ctx, deep),
        ),
        against=sending,
        symptoms=(Symptom.ERRORS,) if lost else (),
        next=(
            "look at decode's preallocation queue first: prefill waits for decode to say where KV may go"
            if full
            else "see which side owns the bootstrap port, and open a TCP connection to it from the other",
            "compare the bootstrap timeout with the wait only after that; a longer one hides it",
        ),
        runbooks=("backpressure-break", "itl-decode-relief") if full else ("restart-pair",),
        do_not=(
            DoNot(action="scale-out-prefill", why="prefill waits for decode; more of it waits as well"),
            DoNot(action="raise-retries", why="each retry takes another place in the same queue"),
        ),
        cap=0.97 if lost else _QUIET_CAP,
    )


def _limit(ctx: Context, unit: str, signal: str) -> float:
    return max(WAITING * size(ctx, unit), GREW * (past.level(ctx, unit, signal) or 0.0))


def _grown(ctx: Context, signal: str) -> tuple[Weighed, ...]:
    return tuple(
        ctx.saw(signal, u, r, past.level(ctx, u, signal), basis="history", ratio=MODERATE, group=signal)
        for u in ctx.units(Role.DECODE)
        if (r := ctx.ask.level(u, signal)).above(_limit(ctx, u, signal))
    )


def _lost(ctx: Context) -> tuple[Weighed, ...]:
    return tuple(
        ctx.saw(signal, CLIENT, r, 0.0, basis="physics", ratio=MODERATE, group="lost")
        for signal in ("request_timeouts", "request_failure")
        if (r := ctx.ask.increase(CLIENT, signal)).above(0)
    )


def _idle(ctx: Context, units: Iterable[str]) -> tuple[Weighed, ...]:
    return tuple(
        ctx.saw("gpu_util", u, r, IDLE_GPU, basis="physics", ratio=MODERATE, group="idle")
        for u in units
        if (r := ctx.ask.level(u, "gpu_util")).below(IDLE_GPU)
    )
