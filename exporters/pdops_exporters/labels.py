"""Which labels the families carry; nothing in them grows with traffic."""

from __future__ import annotations

import re

from pdops.model.cluster import Cluster, Pair, Worker

WORKER = ("cluster", "model", "role", "pool", "worker")
PAIR = ("cluster", "model", "src", "dst")
CLUSTER = ("cluster", "model")

_MAX = 128
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def cluster_values(cluster: Cluster) -> list[str]:
    """Return the values of `CLUSTER`."""
    return [clean(cluster.name), clean(cluster.model or "")]


def worker_values(cluster: Cluster, worker: Worker) -> list[str]:
    """Return the values of `WORKER`."""
    return [*cluster_values(cluster), worker.role.value, clean(worker.pool), worker.id]


def pair_values(cluster: Cluster, pair: Pair) -> list[str]:
    """Return the values of `PAIR`."""
    return [*cluster_values(cluster), clean(pair.src), clean(pair.dst)]


def clean(text: str) -> str:
    """Return a label value without control characters, at most 128 characters long: engines and people wrote it."""
    return _CONTROL.sub("?", text)[:_MAX]
