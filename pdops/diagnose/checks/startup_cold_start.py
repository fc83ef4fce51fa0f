"""Workers have just started and the first requests pay for it."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed
from pdops.diagnose.symptoms import picture
from pdops.diagnose.ttft import stages
from pdops.model.cluster import CLIENT, Role, Worker
from pdops.model.frame import Event, EventKind
from pdops.model.report import DoNot, Missing, Symptom
from pdops.model.series import Reading, Window
from pdops.stats.robust import median

META = CheckMeta(
    id="startup/cold-start",
    title="Workers have just started; the first requests pay for connecting and loading",
    causes=("cold-start",),
    needs=("ttft_seconds", "itl_seconds", "process_start_seconds", "worker_selection"),
    tier=Tier.PRESENCE,
    explains=(
        "prefill-undersized",
        "decode-undersized",
        "transport-slow",
        "traffic-burst",
        "workload-shift",
        "decode-slow-worker",
        "prefix-cache-collapse",
        "ratio-wrong",
        "kvstore-slow-or-missed-prefetch",
    ),
    alert="PDColdStart",
    panel="overview/restarts",
)

WARM_UP_S = 900.0
"""Younger than this, a worker or rollout explains slow first tokens (from public incidents)."""
HALF = 0.5
"""Least share of TTFT that a cause must account for."""
_STAGES = {
    Role.PREFILL: ("prefill_queue", "prefill_compute", "kv_transfer", "handoff"),
    Role.DECODE: ("handoff", "kv_fetch_wait", "kv_transfer", "decode_wait"),
}
SAME = 1.5
"""First tokens over those of peers up to which a worker that started is as warm as they are."""
UNSEEN_CAP = 0.45
"""Most that a recent start carries while nobody tells ITL: warm-up leaves token gaps alone, other faults do not."""
_ENGINES = (Role.PREFILL, Role.DECODE, Role.COLOCATED)


def check(ctx: Context) -> Iterator[Finding]:
    """Join recent starts with slow first tokens; token gaps must be normal."""
    started = ctx.events((EventKind.RESTART, EventKind.ROLLOUT, EventKind.SCALE_OUT), within_s=WARM_UP_S)
    events = [e for e in started if _of_engines(ctx, e)]
    seen = picture(ctx)
    if not events or not seen.ttft_high or seen.itl_high:
        return
    scopes = tuple(
        dict.fromkeys(
            ctx.scope(e.worker) if e.worker else ctx.scope(f"pool:{e.pool}") for e in events if e.worker or e.pool
        )
    )
    for_ = [
        ctx.saw(
            "process_start_seconds",
            e.worker or (f"pool:{e.pool}" if e.pool else None),
            f"{e.kind} {ctx.view.at_s - e.t_s:.0f} s ago",
            None,
            basis="log",
            ratio=STRONG,
            group="started",
        )
        for e in events[:4]
    ]
    for_.append(
        ctx.saw(
            "ttft_seconds",
            None,
            seen.ttft,
            ctx.slo.ttft_s or seen.ttft_before,
            basis="history" if ctx.slo.ttft_s is None else "config",
            ratio=MODERATE,
            group="ttft",
        )
    )
    why = "warm-up leaves token gaps as they were, and ITL is not known"
    unseen = () if seen.itl.known else (Missing(signal="itl_seconds", why=why, fix="scrape decode or the router"),)
    yield Finding(
        status=Status.FIRED,
        cause="cold-start",
        scopes=scopes,
        for_=tuple(for_),
        against=(*_before(ctx, events), *_elsewhere(ctx, events), *_warm(ctx, events), *_unused(ctx, events)),
        missing=unseen,
        cap=UNSEEN_CAP if unseen else 0.97,
        symptoms=(Symptom.STARTUP, Symptom.TTFT),
        next=(
            "compare the first wave's TTFT with later ones",
            "gate readiness on one real generation through router, prefill, transfer and decode",
        ),
        runbooks=("cold-start",),
        do_not=(DoNot(action="scale-out-prefill", why="new workers start cold too; wait for the warm-up to end"),),
    )


def _before(ctx: Context, events: list[Event]) -> tuple[Weighed, ...]:
    """Return that TTFT was over its promise in the part of the window that came before anybody started."""
    first_s, promised = min(e.t_s for e in events), ctx.slo.ttft_s
    if promised is None or first_s <= ctx.view.now.start_s:
        return ()
    part = Window(ctx.view.now.start_s, first_s)
    earlier = ctx.ttft(part)
    # A percentile that is given ready-made is one of a longer time than a part of the window.
    if isinstance(ctx.ask.events(CLIENT, "ttft_seconds", part), Reading) or not earlier.above(promised):
        return ()
    return (ctx.saw("ttft_seconds", None, earlier, promised, basis="config", ratio=STRONG, group="before"),)


def _elsewhere(ctx: Context, events: list[Event]) -> tuple[Weighed, ...]:
    """Return that TTFT is spent on the side where nobody started: warm-up of the other side takes none of it."""
    roles = {w.role for e in events for w in _workers(ctx, e)}
    if len(roles) != 1 or not roles <= set(_STAGES):
        return ()
    found = {name: reading.value for name, reading in stages(ctx).items()}
    mine = _STAGES[roles.pop()]
    own = sum(v or 0.0 for name, v in found.items() if name in mine)
    other = sum(v or 0.0 for name, v in found.items() if name not in mine)
    # What is not told may be on either side, but all of it is within what clients wait.
    total = own + other
    if any(v is None for v in found.values()):
        waited = ctx.ask.mean(CLIENT, "ttft_seconds")
        if waited.value is None or waited.bound is not None:
            return ()
        total = max(total, waited.value)
    if total <= 0 or other <= (1.0 - HALF) * total:
        return ()
    text = f"{other / total:.0%} on the side where nobody started"
    return (ctx.saw("ttft_seconds", None, text, f"{HALF:.0%}", basis="physics", ratio=STRONG, group="stages"),)


def _warm(ctx: Context, events: list[Event]) -> tuple[Weighed, ...]:
    """Return that those that started answer as soon as their peers that did not: they are warm."""
    started = {w.id: w.role for e in events for w in _workers(ctx, e)}
    if len(set(started.values())) != 1:
        return ()
    role = next(iter(started.values()))
    took = {w.id: ctx.ask.mean(w.id, "ttft_seconds") for w in ctx.cluster.of_role(role)}
    peers = median([r.value for w, r in took.items() if w not in started and r.value is not None])
    slowest = max((took[w] for w in started if w in took), key=lambda r: r.value or 0.0, default=None)
    if peers is None or slowest is None or any(took[w].value is None for w in started if w in took):
        return ()
    if not slowest.below(SAME * peers):
        return ()
    return (ctx.saw("ttft_seconds.mean", None, slowest, peers, basis="peer", ratio=STRONG, group="stages"),)


def _unused(ctx: Context, events: list[Event]) -> tuple[Weighed, ...]:
    """Return that workers joined and are sent nothing: nobody waits for them, and nobody was taken away."""
    joined = {w.id for e in events for w in _workers(ctx, e)}
    got = {w: ctx.ask.increase(w, "worker_selection") for w in joined}
    if not got or any(e.kind is not EventKind.SCALE_OUT for e in events) or any(r.value != 0 for r in got.values()):
        return ()
    worker, sent = next(iter(sorted(got.items())))
    return (ctx.saw("worker_selection", worker, sent, "some", basis="physics", ratio=STRONG, group="stages"),)


def _workers(ctx: Context, event: Event) -> tuple[Worker, ...]:
    if event.worker is not None:
        known = ctx.cluster.get(event.worker)
        return () if known is None else (known,)
    return ctx.cluster.of_pool(event.pool) if event.pool is not None else ()


def _of_engines(ctx: Context, event: Event) -> bool:
    """Whether an event is about workers that serve: a router or a store that restarts warms nothing up."""
    if event.worker is not None:
        known = ctx.cluster.get(event.worker)
        return known is None or known.role in _ENGINES
    members = ctx.cluster.of_pool(event.pool) if event.pool is not None else ()
    return not members or members[0].role in _ENGINES
