"""Facts of engines on hosts, as the collectors write them, for tests of preflight checks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pdops.diagnose.finding import Finding
from pdops.model.frame import Event, Probe
from pdops.model.view import View
from tests.diagnose.build import ask, view, worker

Facts = Mapping[str, str | None]
P, D = "prefill-0", "decode-0"
PAIR = f"{P}>{D}"
GID = "0000:0000:0000:0000:0000:ffff:0a00:0001"
LINK_LOCAL = "fe80:0000:0000:0000:0e42:a1ff:fe00:0001"


def engine(host: str, **more: str | None) -> dict[str, str | None]:
    """Return what is known of a NIXL engine whose environment and host were read; keys take `__` for a dot."""
    facts: dict[str, str | None] = {
        "kv_connector": "NixlConnector",
        "version": "0.32.0",
        "nixl_version": "1.5.1",
        "host.name": host,
        "VLLM_NIXL_SIDE_CHANNEL_PORT": "5600",
    }
    return facts | {key.replace("__", "."): value for key, value in more.items()}


def rdma(
    state: str = "ACTIVE", mtu: int | None = 4200, gids: Any = None, layer: str = "Ethernet", name: str = "mlx5_0"
) -> str:
    """Return one RDMA port as JSON."""
    table = [{"index": 3, "gid": GID, "type": "RoCE v2"}] if gids is None else gids
    return json.dumps({name: {"1": {"state": state, "link_layer": layer, "gids": table, "mtu": mtu}}})


def cards(*free_gib: float | None, total_gib: float = 80.0) -> str:
    """Return GPUs with that much free memory as JSON."""
    return json.dumps(
        [
            {
                "index": i,
                "name": "GPU",
                "memory_total_bytes": int(total_gib * 2**30),
                "memory_free_bytes": None if free is None else int(free * 2**30),
            }
            for i, free in enumerate(free_gib)
        ]
    )


def seen(
    prefill: Facts | None = None,
    decode: Facts | None = None,
    *,
    router: Facts | None = None,
    store: Facts | None = None,
    router_engine: str | None = "vllm_router",
    probes: Iterable[Probe] = (),
    events: Iterable[Event] = (),
    link: float | None = None,
    more: Mapping[str, Facts] | None = None,
    engine_name: str | None = "vllm",
) -> View:
    """Return a View of one prefill and one decode worker, with a router and a store where their facts are given."""
    facts: dict[str, Facts] = {P: prefill or {}, D: decode or {}, **(more or {})}
    if router is not None:
        facts["router-0"] = router
    if store is not None:
        facts["store-0"] = store
    workers = [
        worker(name, engine=router_engine if name.startswith("router") else engine_name, url="http://10.0.0.1:8000")
        for name in facts
    ]
    told = {name: {k: v for k, v in known.items() if v is not None} for name, known in facts.items()}
    return view(workers=workers, facts=told, probes=probes, events=events, link_bytes_per_s=link)


def judge(check_id: str, *args: Any, **more: Any) -> tuple[Finding, ...]:
    """Return what a check says of `seen` with these arguments."""
    return ask(check_id, seen(*args, **more))


def because(found: Iterable[Finding]) -> str:
    """Return all reasons of clear findings, a line each."""
    return "\n".join(f.because for f in found if f.because)
