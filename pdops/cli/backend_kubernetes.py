"""The Kubernetes backend of an inventory."""

from __future__ import annotations

import os
import socket
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, cast

from pdops.errors import ActionError, UsageError

if TYPE_CHECKING:
    from pdops.actuate.kubernetes import KubernetesBackend
    from pdops.actuate.router_admin import RouterAdmin
    from pdops.model.cluster import Cluster
    from pdops.model.frame import Probe
    from pdops.sources.inventory import Inventory
    from pdops.sources.inventory_operate import KubernetesOperate


def kubernetes_backend(inventory: Inventory, given: KubernetesOperate, router: RouterAdmin | None) -> KubernetesBackend:
    """Return the backend that `operate: {kubernetes: …}` asks for.

    Raises:
        UsageError: the client library is missing, or nothing says where the API server is.
    """
    from pdops.actuate.kubernetes import KubernetesBackend
    from pdops.actuate.kubernetes_connect import connect
    from pdops.actuate.kubernetes_model import Operated, Workload
    from pdops.clock import WallClock

    def workload(text: str) -> Workload:
        kind, _, name = text.partition("/")
        return Workload(kind=cast('Literal["StatefulSet", "Deployment"]', kind), name=name)

    operated = Operated(
        pools={role: workload(text) for role, text in given.pools.items()},
        max_replicas=given.max_replicas,
        bounds=given.bounds,
        kv_lease_s=given.kv_lease_s,
        lease=given.lease,
        store=workload(given.store) if given.store is not None else None,
        store_id=_store_id(inventory) if given.store is not None else "",
    )
    api = connect(
        kubeconfig=given.kubeconfig, context=given.context, namespace=given.namespace, clock=WallClock(), sleep=time.sleep
    )  # fmt: skip
    cluster = inventory.cluster
    return KubernetesBackend(
        api,
        operated,
        router,
        address=lambda worker: address(cluster, worker),
        canary=lambda worker: _canary(cluster, worker),
        holder=f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}",
    )


def _store_id(inventory: Inventory) -> str:
    stores = [w.id for w in inventory.cluster.workers if w.role == "kvstore"]
    if len(stores) != 1:
        raise UsageError(
            "which store is operated is not clear", where=inventory.path or "", why=f"{len(stores)} workers are kvstore",
            hint="list the one that `operate` names",
        )  # fmt: skip
    return stores[0]


def address(cluster: Cluster, worker: str) -> str:
    """Return where a worker serves: as the inventory says, else as it says of another of its pool, by name.

    Raises:
        ActionError: neither tells.
    """
    role = worker.rpartition("-")[0]
    for one in cluster.workers:
        if one.id == worker and one.url is not None:
            return one.url
    for one in cluster.workers:
        if one.role == role and one.url is not None and one.url.count(one.id) == 1:
            return one.url.replace(one.id, worker)
    raise ActionError(
        "where it serves is not known", where=worker, why="the inventory names no worker of its pool by its own name",
        hint="add it to the inventory",
    )  # fmt: skip


def _canary(cluster: Cluster, worker: str) -> tuple[Probe, ...]:
    """Send a request through every pair of a worker, one the inventory does not list included."""
    from pdops.clock import WallClock
    from pdops.model.cluster import Endpoint
    from pdops.probe.of_worker import of_worker

    fresh = None
    if worker not in {w.id for w in cluster.workers}:
        url = address(cluster, worker)
        like = next(w for w in cluster.workers if w.role == worker.rpartition("-")[0])
        fresh = replace(like, id=worker, url=url, endpoints=(Endpoint(f"{url}/metrics", like.engine),), logs=())
    return of_worker(cluster, worker, WallClock(), fresh)
