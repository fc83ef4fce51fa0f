"""The router calls its metrics stale before the next ones can come."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.preflight import FIX_FACTS, NO_ALERT, Seen, agrees, amount, must, not_applicable, unread, warn
from pdops.model.cluster import Role, Worker

META = CheckMeta(
    id="startup/scrape",
    title="The router's metrics are scraped more often than it calls them stale",
    causes=("router-stale-metrics",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

CAUSE = "router-stale-metrics"
INTERVAL = "scrape_interval_s"
LIMIT = "staleness_limit_s"
SCRAPES = 3.0
"""Scrapes within the limit at least, so that one that fails takes nobody out; the cure of a public incident was a
threshold of three failures."""
OWN = "pdops_router"


def check(ctx: Context) -> Iterator[Finding]:
    """Compare interval and limit of every router that decides by scraped metrics."""
    routers = ctx.cluster.of_role(Role.ROUTER)
    if not routers:
        yield not_applicable(CAUSE, "the inventory has no router")
    for router in routers:
        yield _judge(ctx, router)


def _judge(ctx: Context, router: Worker) -> Finding:
    interval, limit = amount(ctx, router.id, INTERVAL), amount(ctx, router.id, LIMIT)
    if interval is None and limit is None and router.engine == OWN:
        return not_applicable(CAUSE, f"{router.id} is pdops' own router, which counts what it sent and scrapes nothing")
    if interval == 0:
        return not_applicable(CAUSE, f"{router.id} scrapes nothing")
    if interval is None or limit is None:
        name = INTERVAL if interval is None else LIMIT
        return unread(CAUSE, router.id, name, "how old its metrics may be was not read", FIX_FACTS)
    seen = [Seen(router.id, INTERVAL, interval, "s"), Seen(router.id, LIMIT, limit, "s")]
    fix = f"scrape more often, or raise the limit to {SCRAPES * interval:.0f} s"
    if limit <= interval:
        return must(CAUSE, seen, "an interval below the limit, else every worker is stale between scrapes", fix)
    if limit < SCRAPES * interval:
        return warn(CAUSE, seen, f"room for {SCRAPES:.0f} scrapes, so that one that fails takes nobody out", fix)
    return agrees(CAUSE, f"{router.id} scrapes every {interval:g} s and calls {limit:g} s stale")
