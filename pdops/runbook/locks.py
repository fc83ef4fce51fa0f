"""Which scopes exclude each other: a tree of cluster, pool and worker, and one topology a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

TOPOLOGY = "topology"
"""The lock of every run that starts, stops or reroutes workers: one such run at a time in a cluster."""


def wanted(scope: str, *, topology: bool) -> tuple[str, ...]:
    """Return the locks a run takes; a pair is both of its workers.

    Args:
        scope: `cluster`, `pool:NAME`, `worker:ID` or `pair:P>D`.
        topology: whether it changes which workers there are.
    """
    kind, _, name = scope.partition(":")
    own = tuple(f"worker:{worker}" for worker in name.split(">")) if kind == "pair" else (scope,)
    return (TOPOLOGY, *own) if topology else own


def conflict(locks: Iterable[str], held: Mapping[str, str], pools: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the first lock held by another run that excludes one of `locks`, with that run.

    Args:
        locks: what is wanted.
        held: lock to run.
        pools: worker id to pool. A worker of no known pool excludes every pool: nobody can tell that it is another.
    """
    for want in locks:
        for have, run in sorted(held.items()):
            if _excludes(want, have, pools):
                return have, run
    return None


def _excludes(a: str, b: str, pools: Mapping[str, str]) -> bool:
    if a == b:
        return True
    if TOPOLOGY in (a, b):
        return False
    if "cluster" in (a, b):
        return True
    (kind_a, _, name_a), (kind_b, _, name_b) = a.partition(":"), b.partition(":")
    if kind_a == kind_b:
        return False
    pool, worker = (name_a, name_b) if kind_a == "pool" else (name_b, name_a)
    return pools.get(worker, pool) == pool
