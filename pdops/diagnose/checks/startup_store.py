"""The KV store does not answer, forgets when it restarts, or is advertised where nobody finds it."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.hosts import is_loopback, is_wildcard, same_network
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
    warn,
)
from pdops.model.cluster import Role, Worker

META = CheckMeta(
    id="startup/store",
    title="KV store: it answers, peers can reach it, and it has room",
    causes=("kvstore-down", "handshake-address", "kvstore-metadata-loss", "kvstore-full"),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

DOWN = "kvstore-down"
ADDRESS = "handshake-address"
FORGETS = "kvstore-metadata-loss"
FULL = "kvstore-full"
ROOM = 0.1
"""Share of the segment that is free before traffic at least. mooncake_master 0.3.13 starts to evict at 90 % full unless
told otherwise."""
_SAID = {"ok": True, "healthy": True, "refused": False, "timeout": False, "unresolved": False}


def check(ctx: Context) -> Iterator[Finding]:
    """Judge every store of the inventory."""
    stores = ctx.cluster.of_role(Role.KVSTORE)
    if not stores:
        yield not_applicable(DOWN, "the inventory has no KV store")
    for store in stores:
        yield _answers(ctx, store)
        yield _address(ctx, store)
        yield _remembers(ctx, store)
        yield _room(ctx, store)


def _answers(ctx: Context, store: Worker) -> Finding:
    told = fact(ctx, store.id, "reachable")
    state = flag(told)
    up = _SAID.get((told or "").partition(" ")[0].casefold()) if state is None else state
    if up is None:
        return unread(DOWN, store.id, "reachable", "nobody asked whether it answers", "run preflight with its URL")
    if not up:
        return must(
            DOWN, [Seen(store.id, "reachable", told)], "true", "start the store before the engines, and look at its log"
        )
    return agrees(DOWN, f"{store.id} answers")


def _address(ctx: Context, store: Worker) -> Finding:
    """Judge the address under which segments are registered: of the store, and of the engines that lend memory to it."""
    engines = ctx.cluster.of_role(Role.PREFILL, Role.DECODE, Role.COLOCATED)
    names = [store.id, *(w.id for w in engines)]
    told = {n: a for n in names if (a := fact(ctx, n, "local_hostname", "MOONCAKE_LOCAL_HOSTNAME"))}
    if not told:
        return unread(ADDRESS, store.id, "local_hostname", "the address its segments have was not read", FIX_FACTS)
    apart = [same_network(ctx, n, other) for n in told for other in names if other != n]
    hosts = {n: a.rpartition(":")[0] or a for n, a in told.items()}
    bad = [n for n, a in hosts.items() if is_wildcard(a) or (is_loopback(a) and False in apart)]
    if bad:
        return must(
            ADDRESS,
            [Seen(n, "local_hostname", told[n]) for n in bad],
            "an address that workers on other hosts reach",
            "set local_hostname (MOONCAKE_LOCAL_HOSTNAME) to the host's own address",
        )
    if any(is_loopback(a) for a in hosts.values()) and None in apart:
        why = "it is loopback, and it is not known whether all workers are on that host"
        return unread(ADDRESS, [n for n, a in hosts.items() if is_loopback(a)], "host.name", why, FIX_FACTS)
    return agrees(ADDRESS, f"segments at {', '.join(f'{n} {a}' for n, a in told.items())}")


def _remembers(ctx: Context, store: Worker) -> Finding:
    ttl, restart = amount(ctx, store.id, "client_ttl_s"), amount(ctx, store.id, "restart_time_s")
    spare = flag(fact(ctx, store.id, "ha_mode"))
    if spare:
        return agrees(FORGETS, f"{store.id} has a standby master (ha_mode)")
    if ttl is None or restart is None or spare is None:
        name = "ha_mode" if spare is None else "client_ttl_s" if ttl is None else "restart_time_s"
        return unread(FORGETS, store.id, name, "whether a restart of its master is survived was not read", FIX_FACTS)
    if ttl < restart:
        return warn(
            FORGETS,
            [Seen(store.id, "client_ttl_s", ttl, "s"), Seen(store.id, "restart_time_s", restart, "s")],
            "a client TTL above the time a restart takes, or a standby master",
            f"raise client_ttl above {restart:.0f} s, or run the master with ha_mode",
        )
    return agrees(FORGETS, f"clients of {store.id} are kept {ttl:.0f} s, a restart takes {restart:.0f} s")


def _room(ctx: Context, store: Worker) -> Finding:
    total, free = amount(ctx, store.id, "segment_total_bytes"), amount(ctx, store.id, "segment_free_bytes")
    if total is None or free is None:
        name = "segment_total_bytes" if total is None else "segment_free_bytes"
        return unread(FULL, store.id, name, "how much it holds was not read", FIX_FACTS)
    if total <= 0:
        return must(
            FULL,
            [Seen(store.id, "segment_total_bytes", total, "bytes")],
            "more than 0: no worker has lent it memory",
            "give it a segment (global_segment_size), and start the workers that lend theirs",
        )
    if free < ROOM * total:
        return warn(
            FULL,
            [
                Seen(store.id, "segment_free_bytes", free, "bytes"),
                Seen(store.id, "segment_total_bytes", total, "bytes"),
            ],
            f"at least {ROOM:.0%} free",
            "add memory to the store, or expect it to evict what is still needed",
        )
    return agrees(FULL, f"{store.id} has {free / total:.0%} of {total / 1e9:.1f} GB free")
