"""Small pieces that rule expressions are made of."""

from __future__ import annotations

from collections.abc import Iterable

from pdops.grafana.rules.types import CLUSTER, POOL, WORKER

_TEST_LABELS = {"cluster": "c1", "model": "m1"}


def by(labels: Iterable[str], what: str, how: str = "max") -> str:
    """Return an aggregation that keeps these labels; it also merges what two exporters of one cluster tell."""
    return f"{how} by ({', '.join(labels)}) ({what})"


def per_worker(what: str, how: str = "max") -> str:
    """Return one value per worker."""
    return by(WORKER, what, how)


def per_pool(what: str, how: str = "avg") -> str:
    """Return one value per pool."""
    return by(POOL, what, how)


def per_cluster(what: str, how: str = "sum") -> str:
    """Return one value per cluster."""
    return by(CLUSTER, what, how)


def on(labels: Iterable[str]) -> str:
    """Return the matching clause for these labels."""
    return f"on ({', '.join(labels)})"


def worker(metric: str, role: str, name: str = "", **more: str) -> str:
    """Return a series of one worker, for tests."""
    labels = {**_TEST_LABELS, "role": role, "pool": role, "worker": name or f"{role}-0", **more}
    return series(metric, **labels)


def cluster(metric: str, **more: str) -> str:
    """Return a series of a cluster, for tests."""
    return series(metric, **{**_TEST_LABELS, **more})


def client(metric: str) -> str:
    """Return a series of what clients see at the router, for tests."""
    return cluster(metric, router="router-0")


def series(metric: str, **labels: str) -> str:
    """Return `metric{label="value",…}`."""
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{inside}}}"
