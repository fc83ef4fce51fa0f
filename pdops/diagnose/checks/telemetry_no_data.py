"""A worker's data is missing or old, so nothing about it may be called healthy."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import DECISIVE, CheckMeta, Finding, Status, Tier
from pdops.model.report import Missing, Symptom, Verdict
from pdops.model.view import NEXT_TRY, Health, Presence

META = CheckMeta(
    id="telemetry/no-data",
    title="Metrics of a worker are missing or stale",
    causes=("telemetry-gap",),
    needs=("scrape_age_seconds",),
    tier=Tier.DATA,
    alert="PDNoData",
    panel="overview/data-age",
)

_FIX = {
    Presence.NEVER: "check the address, the path and that metrics are switched on",
    Presence.STALE: "check that the worker and its metrics endpoint answer",
    Presence.DOWN: "check that the worker and its metrics endpoint answer",
}
_HERE = "nothing answers: look from here first (network, addresses, pdops' own host)"


def check(ctx: Context) -> Iterator[Finding]:
    """Name the workers that are known and give nothing, or nothing fresh; those that are down only where nothing answers."""
    health = {w.id: ctx.health(w.id) for w in ctx.cluster.workers}
    gone = {w: h for w, h in health.items() if ctx.nothing_answers or h.presence in (Presence.NEVER, Presence.STALE)}
    if not gone:
        return
    scopes = tuple(ctx.scope(worker) for worker in gone)
    yield Finding(
        status=Status.FIRED,
        cause="telemetry-gap",
        verdict=Verdict.UNKNOWN,
        scopes=scopes,
        symptoms=(Symptom.NO_DATA,),
        for_=tuple(
            ctx.saw(
                "scrape_age_seconds",
                worker,
                health.age_s,
                3 * ctx.view.interval_s,
                basis="config",
                ratio=DECISIVE,
                group="age",
            )
            for worker, health in gone.items()
        ),
        missing=tuple(
            Missing(
                signal="all signals",
                why=_why(health),
                fix=_FIX[health.presence],
                scope=ctx.scope(worker),
            )
            for worker, health in gone.items()
        ),
        next=(
            *([_HERE] if ctx.nothing_answers else []),
            *(f"read {worker}'s metrics page by hand: {_why(health)}" for worker, health in list(gone.items())[:3]),
        ),
    )


def _why(health: Health) -> str:
    return (health.why or "no data").partition(NEXT_TRY)[0]
