"""Which pages of a cluster there are to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pdops.catalog.load import catalog
from pdops.clock import Clock
from pdops.errors import InventoryError
from pdops.model.cluster import Cluster, Worker
from pdops.sources.backoff import Backoff
from pdops.sources.targets import FULL_EVERY_S, Target


def targets_of(
    cluster: Cluster, *, clock: Clock, interval_s: float, now: Callable[[], float], full_every_s: float = FULL_EVERY_S
) -> tuple[Target, ...]:
    """Return every page of a cluster, in inventory order.

    A worker without endpoints is read at its serving address plus its engine's path.

    Raises:
        InventoryError: no worker has an address.
    """
    pages = [(worker, *page) for worker in cluster.workers for page in _pages(worker)]
    if not pages:
        raise InventoryError(
            "nothing to scrape", where=cluster.name, why="no worker has an address", hint="give a worker its url"
        )
    return tuple(
        Target(
            worker,
            url,
            engine,
            clock=clock,
            backoff=Backoff(interval_s),
            phase=(place + 1) / len(pages),
            full_every_s=full_every_s,
            now=now,
        )
        for place, (worker, url, engine) in enumerate(pages)
    )


def _pages(worker: Worker) -> Sequence[tuple[str, str | None]]:
    if worker.endpoints:
        alone = len(worker.endpoints) == 1
        return [(e.url, e.engine or (worker.engine if alone else None)) for e in worker.endpoints]
    if worker.url is None:
        return []
    spec = catalog().engines.get(worker.engine or "")
    return [(worker.url.rstrip("/") + (spec.path if spec is not None else "/metrics"), worker.engine)]
