"""The router chooses without looking at what makes the load uneven: load, prefixes or zones."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.cache import LOCAL, shares
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, not_known
from pdops.diagnose.load import holding, members, traffic
from pdops.diagnose.preflight import fact
from pdops.diagnose.symptoms import SKEW, picture
from pdops.model.cluster import Pair, Role
from pdops.model.report import DoNot, Symptom

META = CheckMeta(
    id="router/blind-policy",
    title="The router's policy does not look at what makes the load uneven",
    causes=("router-imbalance", "router-index-loss", "cross-zone"),
    needs=(
        "worker_selection",
        "running_requests",
        "prefix_cache_hits",
        "prefix_cache_queries",
        "kv_transfer_bytes",
        "ttft_seconds",
    ),
    tier=Tier.STAGE,
    explains=("prefill-undersized", "decode-undersized", "decode-slow-worker", "prefix-cache-collapse", "ratio-wrong"),
    no_alert="a policy is configuration; uneven load, hit rates and pairs across zones have their own alerts",
)

BUSY = 2.0
"""Mean running requests per worker below which one request more or less makes the skew."""
CROSSING = 0.3
"""Share of KV bytes between zones from which zones are not looked at; chance gives a half with two zones of equal size."""
OPTIONS = ("policy", "router_mode", "prefill_policy", "routing_policy")
TURNS = ("round", "random")
"""Policies with one of these in their name look at nothing."""
LOADS = ("least", "power", "load", "queue", "request", "kv", "cache", "prefix", "zone", "precise")
PREFIXES = ("kv", "cache", "prefix", "precise")
ZONES = ("zone", "topology", "locality")


def check(ctx: Context) -> Iterator[Finding]:
    """Set what is uneven beside what the router's policy looks at."""
    routers = ctx.cluster.of_role(Role.ROUTER)
    wrong = {
        "router-imbalance": (_uneven(ctx), LOADS, "load"),
        "router-index-loss": (_unfound(ctx), PREFIXES, "prefixes"),
        "cross-zone": (_crossing(ctx), ZONES, "zones"),
    }
    if not routers or not any(seen for seen, _, _ in wrong.values()):
        return
    policies = {r.id: p for r in routers if (p := fact(ctx, r.id, *OPTIONS)) is not None}
    if not policies:
        cause = next(c for c, (seen, _, _) in wrong.items() if seen)
        why = "load is uneven and how the router chooses was not read"
        yield not_known(cause, "policy", why, "give the router's options as facts", ctx.scope(routers[0].id))
        return
    for cause, (seen, names, what) in wrong.items():
        blind = {r: p for r, p in policies.items() if seen and _ignores(p, names)}
        if blind:
            yield _finding(ctx, cause, seen, blind, what)


def _ignores(policy: str, names: tuple[str, ...]) -> bool:
    """Whether a policy surely looks at none of these; a name nobody knows says nothing."""
    name = policy.casefold()
    known = any(word in name for word in (*TURNS, *LOADS, *ZONES))
    return known and not any(word in name for word in names)


def _finding(ctx: Context, cause: str, seen: tuple[Weighed, ...], blind: dict[str, str], what: str) -> Finding:
    said = tuple(
        ctx.saw("policy", router, policy, f"one that looks at {what}", basis="config", ratio=STRONG, group="policy")
        for router, policy in sorted(blind.items())
    )
    return Finding(
        status=Status.FIRED,
        cause=cause,
        scopes=(*(ctx.scope(r) for r in sorted(blind)), *(w.evidence.scope for w in seen if w.evidence.scope)),
        for_=(*seen, *said),
        symptoms=(Symptom.SKEW,) if cause == "router-imbalance" else (),
        next=(
            f"let {', '.join(sorted(blind))} choose by {what} as well: its policy {sorted(blind.values())[0]} does not look at them",
            "change it for a part of the traffic first, and compare skew, hit rate and TTFT of both parts",
        ),
        runbooks=("routing-rebalance",),
        do_not=(
            DoNot(action="scale-out-prefill", why="more workers do not change how they are chosen"),
            DoNot(action="scale-out-decode", why="more workers do not change how they are chosen"),
        ),
    )


def _uneven(ctx: Context) -> tuple[Weighed, ...]:
    found = []
    for role in (Role.PREFILL, Role.DECODE):
        for workers in members(ctx, role):
            gets, runs = traffic(ctx, workers), holding(ctx, workers, "running_requests", BUSY)
            for split in (gets, runs):
                if split is not None and split.skew >= SKEW:
                    hot = split.hottest
                    at = split.signal if split is runs else f"{split.signal}.rate"
                    found.append(
                        ctx.saw(
                            at, hot, split.by_worker[hot], split.mean, basis="peer", ratio=MODERATE, group=split.signal
                        )
                    )
    return tuple(found)


def _unfound(ctx: Context) -> tuple[Weighed, ...]:
    """Return hit rates of the engines' own caches that fell: prompts reach workers that do not know their start."""
    return tuple(
        ctx.saw(s.signal, s.unit, s.now, s.before, basis="history", ratio=MODERATE, group="hits")
        for s in shares(ctx, LOCAL)
        if s.fell
    )


def _crossing(ctx: Context) -> tuple[Weighed, ...]:
    """Return the share of KV bytes that crosses zones, where first tokens are slow."""
    if not picture(ctx).ttft_high:
        return ()
    moved = {p: ctx.ask.increase(p.key, "kv_transfer_bytes").value or 0.0 for p in ctx.pairs_with("kv_transfer_bytes")}
    zones = {p: _zones(ctx, p) for p in moved}
    told = {p: v for p, v in moved.items() if None not in zones[p]}
    total = sum(told.values())
    across = sum(v for p, v in told.items() if zones[p][0] != zones[p][1])
    if total <= 0 or across < CROSSING * total:
        return ()
    far = max((p for p in told if zones[p][0] != zones[p][1]), key=lambda p: (told[p], str(p)))
    seen = f"{across / total:.0%} of KV bytes cross zones"
    return (ctx.saw("kv_transfer_bytes", far.key, seen, None, basis="physics", ratio=MODERATE, group="across"),)


def _zones(ctx: Context, pair: Pair) -> tuple[str | None, str | None]:
    src, dst = ctx.cluster.get(pair.src), ctx.cluster.get(pair.dst)
    return (src.zone if src else None, dst.zone if dst else None)
