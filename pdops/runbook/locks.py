"""Which objects exclude each other: a tree of cluster, pool and worker, and one topology a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pdops.actuate.backend import State
from pdops.runbook.model import ScopeOf
from pdops.runbook.plan import Plan

TOPOLOGY, CLUSTER = "topology", "cluster"
"""The lock of every run that changes who is there, one such run at a time; and that of runs about everything."""


def wanted(plan: Plan) -> tuple[str, ...]:
    """Return the locks a plan takes: what it touches, all of it for a cluster, and the topology where that changes."""
    touched = (CLUSTER,) if plan.scope is ScopeOf.CLUSTER or not plan.touches else tuple(sorted(plan.touches))
    return (TOPOLOGY, *touched) if plan.topology else touched


def pools(state: State) -> dict[str, str]:
    """Return worker id to pool, where roles are known."""
    found = {worker: state.get(f"worker/{worker}/role").value for worker in state.workers()}
    return {worker: role for worker, role in found.items() if isinstance(role, str)}


def overlap(a: Iterable[str], b: Iterable[str], pools: Mapping[str, str], *, but: str = "") -> str | None:
    """Return the first lock of `a` that excludes one of `b`, or None.

    Args:
        a: locks of one run.
        b: locks of another.
        pools: worker id to pool. A worker of no known pool excludes every pool: nobody can tell that it is of another.
        but: a lock that is left out of account.
    """
    other = set(b) - {but}
    return next((one for one in a if one != but and any(_excludes(one, two, pools) for two in other)), None)


def _excludes(a: str, b: str, pools: Mapping[str, str]) -> bool:
    if a == b:
        return True
    if TOPOLOGY in (a, b):
        return False
    if CLUSTER in (a, b):
        return True
    (kind_a, _, name_a), (kind_b, _, name_b) = a.partition("/"), b.partition("/")
    if {kind_a, kind_b} != {"pool", "worker"}:
        return False
    pool, worker = (name_a, name_b) if kind_a == "pool" else (name_b, name_a)
    return pools.get(worker, pool) == pool
