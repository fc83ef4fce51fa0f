"""Prompts that used to be found in a cache are computed again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pdops.diagnose import past
from pdops.diagnose.cache import LOCAL, STORED, WORTH, Share, shares, store_up
from pdops.diagnose.context import Context
from pdops.diagnose.finding import DECISIVE, MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.symptoms import picture
from pdops.model.cluster import Role
from pdops.model.frame import EventKind
from pdops.model.report import DoNot, Scope

META = CheckMeta(
    id="kvstore/prefix-collapse",
    title="The prefix hit rate fell",
    causes=("prefix-cache-collapse", "router-index-loss"),
    needs=(
        "prefix_cache_hits",
        "prefix_cache_queries",
        "external_cache_hits",
        "external_cache_queries",
        "kvstore_up",
        "process_start_seconds",
        "prompt_length",
    ),
    tier=Tier.PAIR,
    # What was cached is computed again, which takes longer for a prompt token.
    explains=("prefill-undersized", "prefill-slow-worker", "traffic-burst", "ratio-wrong", "cold-start"),
    alert="PDPrefixHitRateFell",
    panel="kv-store/hit-rate",
)

RECENT_S = 900.0
"""An index or a cache fills again over minutes, so a restart counts for longer than for a connection."""
GUESS_CAP = 0.45
"""Most for a lost index while nothing but missing hits tells of it: a cache that lost its contents looks the same."""
OTHER = 2.0
"""Prompts this many times as long or as short are other prompts, which need not share a prefix."""


def check(ctx: Context) -> Iterator[Finding]:
    """Tell a cache that lost its contents from a router that no longer knows where they are."""
    local, stored = shares(ctx, LOCAL), shares(ctx, STORED)
    waits = picture(ctx).ttft_high
    fell = [s for s in (*local, *stored) if s.fell or (waits and s.dearer)]
    if not fell:
        known = [s for s in (*local, *stored) if s.before is not None and s.before >= WORTH]
        if known:
            worst = min(known, key=lambda s: (s.now.value or 0.0) - (s.before or 0.0))
            yield clear(
                "prefix-cache-collapse",
                f"hit rate {worst.now.value:.0%}, before {worst.before:.0%}",
                ctx.scope(worst.unit),
            )
        return
    direct = [ctx.saw(s.signal, s.unit, s.now, s.before, basis="history", ratio=STRONG, group="hits") for s in fell]
    scopes = _where(ctx, tuple(dict.fromkeys(s.unit for s in fell)))
    emptied = _restarted(ctx, Role.PREFILL, {s.unit for s in fell}, STRONG)
    if emptied and not waits:
        yield clear("prefix-cache-collapse", f"the cache fills again after a {emptied[0].evidence.observed}", scopes[0])
        return
    blind = _restarted(ctx, Role.ROUTER, None, DECISIVE)
    sound = _store_is_sound(ctx, local, stored)
    other = _other_prompts(ctx)
    if blind or any(s in fell for s in local):
        # A shared store answers whoever asks, so its hits do not depend on where the router sends a prompt.
        shared = [
            ctx.saw(s.signal, s.unit, s.now, s.before, basis="history", ratio=STRONG, group="store")
            for s in stored
            if s.fell and not blind
        ]
        against = (*emptied, *other, *shared, *(() if blind or sound else _only_one(ctx)))
        found = _index_lost(ctx, scopes, (*direct, *blind, *sound), against, restarted=bool(blind))
        yield found if blind or sound else replace(found, cap=GUESS_CAP)
    yield Finding(
        status=Status.FIRED,
        cause="prefix-cache-collapse",
        scopes=scopes,
        for_=(*direct, *emptied),
        against=(*blind, *sound, *other),
        next=(
            "look for what emptied the cache: restart, reset, eviction, a new salt or template in the prompts",
            "compare the share of repeated prompts with an hour ago",
        ),
        runbooks=("kv-store-outage", "ttft-prefill-relief"),
        do_not=(
            DoNot(action="scale-out-prefill", why="new workers start with an empty cache; find what emptied it first"),
        ),
    )


def _where(ctx: Context, units: tuple[str, ...]) -> tuple[Scope, ...]:
    """Return the workers, or the pools where at least half of several fell: then chance decides how far each of them did."""
    asked = ctx.units(Role.PREFILL)
    if len(units) > 1 and 2 * len(units) >= len(asked):
        return tuple(ctx.scope(p) for p in ctx.pools(Role.PREFILL))
    return tuple(ctx.scope(u) for u in units)


def _index_lost(
    ctx: Context,
    scopes: tuple[Scope, ...],
    for_: tuple[Weighed, ...],
    against: tuple[Weighed, ...],
    *,
    restarted: bool,
) -> Finding:
    """Return that the router no longer knows where prefixes are; it sends prompts elsewhere, so engines' own caches miss."""
    return Finding(
        status=Status.FIRED,
        cause="router-index-loss",
        scopes=tuple(ctx.scope(w.id) for w in ctx.cluster.of_role(Role.ROUTER)) if restarted else scopes,
        for_=for_,
        against=against,
        next=(
            "see when the router started, and whether engines publish KV events to it (same hash algorithm and seed)",
            "send one prompt twice and see whether it reaches the same worker",
        ),
        runbooks=("routing-rebalance",),
        do_not=(
            DoNot(action="disable-prefix-cache", why="the caches are whole; the router has to learn where things are"),
            DoNot(action="scale-out-prefill", why="more workers spread the same prefixes even thinner"),
        ),
    )


def _restarted(ctx: Context, role: Role, units: set[str] | None, ratio: float) -> tuple[Weighed, ...]:
    kinds = (EventKind.RESTART, EventKind.ROLLOUT)
    found = []
    for worker in ctx.cluster.of_role(role):
        if units is not None and not units & {worker.id, f"pool:{worker.pool}"}:
            continue
        for event in ctx.events(kinds, within_s=RECENT_S, worker=worker.id)[:1]:
            seen = f"{event.kind} {ctx.view.at_s - event.t_s:.0f} s ago"
            found.append(
                ctx.saw("process_start_seconds", worker.id, seen, None, basis="log", ratio=ratio, group="restart")
            )
    return tuple(found)


def _store_is_sound(ctx: Context, local: tuple[Share, ...], stored: tuple[Share, ...]) -> tuple[Weighed, ...]:
    """Return what speaks for the store: it answers and finds as much as before, while the engines' caches do not."""
    if not any(s.fell for s in local) or any(s.fell for s in stored):
        return ()
    held = [s for s in stored if s.held]
    found = [ctx.saw(s.signal, s.unit, s.now, s.before, basis="history", ratio=MODERATE, group="store") for s in held]
    if store_up(ctx):
        found.append(ctx.saw("kvstore_up", None, 1.0, 1.0, basis="probe", ratio=MODERATE, group="store"))
    return tuple(found)


def _only_one(ctx: Context) -> tuple[Weighed, ...]:
    """Return that there is one prefill worker: wherever the router thinks a prefix is, it is sent there."""
    if len(ctx.cluster.of_role(Role.PREFILL)) != 1:
        return ()
    seen = "one prefill worker"
    return (ctx.saw("router_policy", None, seen, "several", basis="config", ratio=STRONG, group="choice"),)


def _other_prompts(ctx: Context) -> tuple[Weighed, ...]:
    """Return a change of prompt lengths: other prompts hit less without any cache at fault."""
    for pool in ctx.pools(Role.PREFILL):
        now = ctx.ask.mean(pool, "prompt_length")
        before = past.mean(ctx, pool, "prompt_length")
        if before and (now.above(OTHER * before) or now.below(before / OTHER)):
            return (ctx.saw("prompt_length.mean", pool, now, before, basis="history", ratio=MODERATE, group="prompts"),)
    return ()
