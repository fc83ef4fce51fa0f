"""Bytes of KV per token of the cluster's model."""

from __future__ import annotations

from pdops.history.readings import Readings
from pdops.model.cluster import Role
from pdops.model.view import View
from pdops.stats.kvsize import shape_of


def kv_bytes_per_token(view: View) -> float | None:
    """Return bytes of KV per token: from the inventory, else from what prefill workers tell of their model.

    None when nobody tells enough, or workers tell different things.
    """
    if view.cluster.kv_bytes_per_token is not None:
        return view.cluster.kv_bytes_per_token
    ask = Readings(view)
    told = set()
    for worker in view.cluster.of_role(Role.PREFILL, Role.COLOCATED):
        shape = shape_of(view.facts.get(worker.id, {}))
        if shape is not None:
            told.add(shape.per_token(ask.mean(worker.id, "prompt_length").value))
    return told.pop() if len(told) == 1 else None
