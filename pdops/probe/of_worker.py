"""The canary that a runbook sends: through every pair of one worker."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from pdops.clock import Clock
from pdops.errors import ActionError
from pdops.model.cluster import Cluster, Worker
from pdops.model.frame import Probe
from pdops.probe.canary import Canary, CanarySettings
from pdops.probe.report import to_probes

TIMEOUT_S = 90.0
"""A worker that has just been started answers its first request late."""


def of_worker(cluster: Cluster, worker: str, clock: Clock, fresh: Worker | None = None) -> tuple[Probe, ...]:
    """Send a request with a known answer through every pair of a worker, and return what came.

    Args:
        cluster: who is there.
        worker: its id.
        clock: where time comes from.
        fresh: the worker, where the cluster does not list it yet.

    Raises:
        ActionError: nobody is on the other side.
    """
    if fresh is not None:
        cluster = replace(cluster, workers=(*cluster.workers, fresh))
    pairs = tuple(p for p in cluster.pairs() if worker in (p.src, p.dst))
    if not pairs:
        raise ActionError("no pair to ask", where=worker, why="nobody is on the other side", hint="start a peer")
    report = asyncio.run(Canary(cluster, clock, CanarySettings(timeout_s=TIMEOUT_S)).run(pairs, routers=False))
    return to_probes(report.pairs)
