"""The router looks for prefixes that its workers do not tell it of, or counts them in other blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.hosts import leaf
from pdops.diagnose.preflight import (
    FIX_FACTS,
    NO_ALERT,
    Seen,
    agrees,
    amount,
    fact,
    flag,
    must,
    not_applicable,
    unread,
    was_configured,
)
from pdops.model.cluster import Role, Worker

META = CheckMeta(
    id="startup/kv-events",
    title="Prefix routing: workers publish KV events, and block sizes agree",
    causes=("router-index-loss",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

CAUSE = "router-index-loss"
_BY_EVENTS = ("kv", "precise")
"""Policies whose name holds one of these follow what workers publish (Dynamo `kv`, llm-d `precise-prefix-cache`)."""
_BY_BLOCKS = ("prefix",)
"""Policies that hash prompts in blocks themselves and need no events."""
_SWITCHES = ("enable_kv_cache_events", "enable_kv_events")


def check(ctx: Context) -> Iterator[Finding]:
    """Judge every router whose policy looks for prefixes."""
    routers = ctx.cluster.of_role(Role.ROUTER)
    if not routers:
        yield not_applicable(CAUSE, "the inventory has no router")
    workers = ctx.cluster.of_role(Role.PREFILL, Role.DECODE, Role.COLOCATED)
    for router in routers:
        policy = fact(ctx, router.id, "policy", "router_mode", "prefill_policy")
        if policy is None:
            yield unread(CAUSE, router.id, "policy", "how it chooses workers was not read", FIX_FACTS)
            continue
        name = policy.casefold()
        by_events = any(word in name for word in _BY_EVENTS)
        if not by_events and not any(word in name for word in _BY_BLOCKS):
            yield not_applicable(CAUSE, f"{router.id} chooses by {policy}, which looks for no prefix")
            continue
        if by_events:
            yield from _events(ctx, router, policy, workers)
        yield from _blocks(ctx, router, workers)


def _events(ctx: Context, router: Worker, policy: str, workers: tuple[Worker, ...]) -> Iterator[Finding]:
    told = {w.id: _publishes(ctx, w.id) for w in workers}
    lost = [name for name, on in told.items() if on is None]
    silent = [name for name, on in told.items() if on is False]
    if lost:
        yield unread(CAUSE, lost, "kv_events_config", "whether it publishes KV events was not read", FIX_FACTS)
    if silent:
        yield must(
            CAUSE,
            [
                Seen(router.id, "policy", policy),
                *(Seen(n, "kv_events_config", fact(ctx, n, "kv_events_config") or "not set") for n in silent),
            ],
            "enable_kv_cache_events on every worker the router indexes",
            'start each with --kv-events-config \'{"enable_kv_cache_events": true, "publisher": "zmq"}\' and the '
            "endpoint the router listens to",
        )
    elif told and not lost:
        yield agrees(CAUSE, f"all {len(told)} workers publish KV events for {router.id}")


def _publishes(ctx: Context, worker: str) -> bool | None:
    for name in _SWITCHES:
        on = flag(leaf(ctx, worker, name))
        if on is not None:
            return on
    text = fact(ctx, worker, "kv_events_config")
    if text is None:
        return False if was_configured(ctx, worker) else None
    try:
        config = json.loads(text)
    except ValueError:
        return None
    return bool(config.get("enable_kv_cache_events", False)) if isinstance(config, dict) else config is not None


def _blocks(ctx: Context, router: Worker, workers: tuple[Worker, ...]) -> Iterator[Finding]:
    mine = amount(ctx, router.id, "block_size")
    told = {w.id: amount(ctx, w.id, "block_size", "page_size") for w in workers}
    lost = [name for name, size in {router.id: mine, **told}.items() if size is None]
    if lost:
        yield unread(CAUSE, lost, "block_size", "how many tokens a block has was not read", FIX_FACTS)
    apart = [name for name, size in told.items() if mine is not None and size is not None and size != mine]
    if apart:
        yield must(
            CAUSE,
            [Seen(router.id, "block_size", mine), *(Seen(name, "block_size", told[name]) for name in apart)],
            "the same on router and workers, else no prefix is found again",
            f"set the block size of {router.id} to that of the engines",
        )
    elif not lost:
        yield agrees(CAUSE, f"blocks have {mine:.0f} tokens on {router.id} and all its workers")
