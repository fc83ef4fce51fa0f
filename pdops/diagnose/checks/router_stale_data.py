"""The router sends requests to a worker whose numbers it no longer gets."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear, not_known
from pdops.diagnose.load import traffic
from pdops.diagnose.symptoms import SKEW
from pdops.model.cluster import Role
from pdops.model.report import DoNot, Symptom
from pdops.model.series import Reading

META = CheckMeta(
    id="router/stale-data",
    title="The router decides on old or missing data of a worker",
    causes=("router-stale-metrics",),
    needs=("router_metric_age_seconds", "worker_selection", "running_requests"),
    tier=Tier.PAIR,
    explains=(
        "router-imbalance",
        "prefix-hotspot",
        "prefill-undersized",
        "decode-undersized",
        "prefill-slow-worker",
        "decode-slow-worker",
        "decode-kv-exhaustion",
        "backpressure-to-prefill",
        "traffic-burst",
        "ratio-wrong",
        "cold-start",
    ),
    alert="PDRouterDataStale",
    panel="routing/metric-age",
)

OLD_S = 15.0
"""Three refreshes at 5 s, a slow pace for a router; data older than three intervals counts as missing."""


def check(ctx: Context) -> Iterator[Finding]:
    """Look for workers with old or no data at the router, and ask whether they get requests all the same."""
    for role in (Role.PREFILL, Role.DECODE, Role.COLOCATED):
        for pool in ctx.cluster.pools(role):
            workers = tuple(w.id for w in ctx.cluster.of_pool(pool))
            ages = {w: ctx.ask.level(w, "router_metric_age_seconds") for w in workers}
            fresh = [w for w, age in ages.items() if age.known and not age.above(OLD_S)]
            old = [w for w, age in ages.items() if age.above(OLD_S) or (not age.known and fresh)]
            if fresh and not old:
                oldest = max(ages[w].value or 0.0 for w in fresh)
                yield clear("router-stale-metrics", f"the router's data of {pool} is at most {oldest:.3g} s old")
            if old:
                yield from _judge(ctx, role, workers, old, ages)


def _judge(
    ctx: Context, role: Role, workers: tuple[str, ...], old: list[str], ages: dict[str, Reading]
) -> Iterator[Finding]:
    gets = _gets(ctx, workers, old)
    if gets is None:
        why = "nobody tells whether the router still sends requests to workers it has no fresh data of"
        yield not_known("router-stale-metrics", "worker_selection", why, "add the router with --target router=URL")
    elif not gets:
        yield clear("router-stale-metrics", f"{', '.join(old)} gets no requests while its data is old")
        return
    for_ = [_age(ctx, w, ages[w]) for w in old]
    yield Finding(
        status=Status.FIRED,
        cause="router-stale-metrics",
        scopes=tuple(ctx.scope(w) for w in old),
        for_=(*for_, *(gets or ())),
        symptoms=(Symptom.SKEW,) if gets and any(w.ratio >= STRONG for w in gets) else (),
        next=(
            f"stop sending to {', '.join(old[:3])} until the router reads it again; look at its metrics address and scrape errors",
            "let the router leave out workers whose data is older than a few refreshes, and workers without data",
        ),
        runbooks=("restart-worker",),
        do_not=(
            DoNot(action="routing-rebalance", why="prefix and zone weights change nothing while the data is old"),
            DoNot(
                action="scale-out-prefill" if role is Role.PREFILL else "scale-out-decode",
                why="a new worker without data looks idle and is flooded next",
            ),
        ),
    )


def _age(ctx: Context, worker: str, age: Reading) -> Weighed:
    seen = age if age.known else "no data at the router"
    return ctx.saw("router_metric_age_seconds", worker, seen, OLD_S, basis="physics", ratio=MODERATE, group="age")


def _gets(ctx: Context, workers: tuple[str, ...], old: list[str]) -> list[Weighed] | None:
    """Return that old workers get requests: STRONG for more than their share. None when nobody tells."""
    split = traffic(ctx, workers) if len(workers) > 1 else None
    if split is not None:
        return [
            ctx.saw(
                f"{split.signal}.rate",
                w,
                split.by_worker[w],
                split.mean,
                basis="peer",
                ratio=STRONG if split.by_worker[w] >= split.mean else MODERATE,
                group="traffic",
            )
            for w in old
            if split.by_worker[w] > 0
        ]
    found = []
    known = False
    busy = {w: ctx.ask.level(w, "running_requests").value for w in workers}
    mean = sum(v or 0.0 for v in busy.values()) / len(workers)
    for worker in old:
        sent = ctx.ask.increase(worker, "worker_selection")
        known = known or sent.known
        if sent.above(0):
            found.append(
                ctx.saw("worker_selection", worker, sent, None, basis="physics", ratio=MODERATE, group="traffic")
            )
        running = ctx.ask.level(worker, "running_requests")
        if None not in busy.values() and mean > 0 and running.above(SKEW * mean):
            known = True
            found.append(
                ctx.saw("running_requests", worker, running, mean, basis="peer", ratio=STRONG, group="traffic")
            )
    return found if known else None
