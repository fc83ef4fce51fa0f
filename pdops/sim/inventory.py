"""The inventory of a simulation that is shown on loopback, for `-c`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from pdops.model.cluster import Cluster, Worker
from pdops.sim.instruments import Instruments


def inventory_text(
    cluster: Cluster, instruments: Mapping[str, Instruments], url: Callable[[str], str], logs: Path | None
) -> str:
    """Return `pdops.yaml`.

    Args:
        cluster: who is there.
        instruments: the pages by name.
        url: gives the address of a page by name.
        logs: the folder in which workers log, or None.
    """
    content: dict[str, Any] = {"version": 1, "cluster": cluster.name}
    model = {"name": cluster.model, "kv_bytes_per_token": cluster.kv_bytes_per_token}
    if cluster.model is not None:
        content["model"] = {k: v for k, v in model.items() if v is not None}
    slo = {k: v for k, v in (("ttft_s", cluster.slo.ttft_s), ("itl_s", cluster.slo.itl_s)) if v is not None}
    if slo:
        content["slo"] = {**slo, "percentile": cluster.slo.percentile, "attainment": cluster.slo.attainment}
    if cluster.link_bytes_per_s is not None:
        content["links"] = {"baseline_bytes_per_s": cluster.link_bytes_per_s}
    content["workers"] = [_entry(worker, instruments, url, logs) for worker in cluster.workers]
    return yaml.safe_dump(content, sort_keys=False, width=160)


def _entry(
    worker: Worker, instruments: Mapping[str, Instruments], url: Callable[[str], str], logs: Path | None
) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": worker.id, "role": worker.role.value, "pool": worker.pool}
    own = sorted((i.endpoint, name) for name, i in instruments.items() if i.worker == worker.id)
    pages = [{"url": f"{url(name)}/metrics", "engine": instruments[name].engine} for _, name in own]
    if own:
        entry |= {"url": url(own[0][1]), "engine": pages[0]["engine"]}
    if len(pages) > 1:
        entry["metrics"] = pages
    entry |= {k: v for k, v in (("node", worker.node), ("zone", worker.zone)) if v is not None}
    if logs is not None:
        entry["logs"] = [{"file": str(logs / f"{worker.id}.log")}]
    return entry
