"""The memory that RDMA must pin is more than the host lets a process lock."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from pdops.diagnose.context import Context
from pdops.diagnose.fabric import over_rdma
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.hosts import FIX_HOST, NO_PAIR, split
from pdops.diagnose.preflight import NO_ALERT, Seen, agrees, amount, engines, fact, must, not_applicable, unread, warn
from pdops.model.cluster import Role

META = CheckMeta(
    id="host/memlock",
    title="Locked memory: unlimited where KV travels over RDMA",
    causes=("mem-registration",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

CAUSE = "mem-registration"
LOCK = "host.memlock_bytes"
MAPS = "host.max_map_count"
LEAST_MAPS = 65_530.0
"""Linux' default of vm.max_map_count; below it large pools of registered memory run out of mappings."""


def check(ctx: Context) -> Iterator[Finding]:
    """Judge the limits of every engine and store that moves KV over RDMA."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable(CAUSE, NO_PAIR)
        return
    ours, unknown, others = over_rdma(ctx, workers)
    stores = [s for s in ctx.cluster.of_role(Role.KVSTORE) if fact(ctx, s.id, "MC_PROTOCOL", "protocol") == "rdma"]
    for name, path in unknown.items():
        yield unread(CAUSE, name, path.missing, path.why, FIX_HOST)
    names = [w.id for w in (*ours, *stores)]
    if not names:
        if not unknown:
            yield not_applicable(CAUSE, f"nothing is pinned for RDMA ({'; '.join(others)})")
        return
    told, lost = split(names, lambda name: amount(ctx, name, LOCK))
    if lost:
        yield unread(CAUSE, lost, LOCK, "the limit of locked memory was not read", FIX_HOST)
    bound = [n for n, limit in told.items() if limit != inf]
    if bound:
        yield must(
            CAUSE,
            [Seen(n, LOCK, told[n], "bytes") for n in bound],
            "unlimited",
            "set `ulimit -l unlimited` for the service (LimitMEMLOCK=infinity, --ulimit memlock=-1, or the container "
            "runtime's default), and start it again",
        )
    elif told:
        yield agrees(CAUSE, f"locked memory is unlimited on {', '.join(told)}")
    maps, unmapped = split(names, lambda name: amount(ctx, name, MAPS))
    if unmapped:
        yield unread(CAUSE, unmapped, MAPS, "vm.max_map_count was not read", FIX_HOST)
    few = [n for n, count in maps.items() if count < LEAST_MAPS]
    if few:
        yield warn(
            CAUSE,
            [Seen(n, MAPS, maps[n]) for n in few],
            f"at least {LEAST_MAPS:.0f}, Linux' default",
            "raise vm.max_map_count with sysctl on the node",
        )
