"""What KV is meant to travel over, as the options of connectors, NIXL, UCX and Mooncake tell."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pdops.diagnose.context import Context
from pdops.diagnose.devices import RdmaPort, rdma_ports
from pdops.diagnose.hosts import env, leaf, listed, table
from pdops.diagnose.preflight import fact
from pdops.model.cluster import Worker

_ALL = ("", "all")
_RDMA = frozenset({"rc", "ud", "dc", "ib", "srd", "gga"})
"""Transports of UCX that use verbs, by what stands before the first underscore."""


@dataclass(frozen=True, slots=True)
class Fabric:
    """Whether KV is meant to travel over RDMA, None when that cannot be told, and why."""

    rdma: bool | None
    why: str
    missing: str = ""


def connectors(ctx: Context, worker: str) -> tuple[str, ...] | None:
    """Return the KV connectors of a worker, those under a MultiConnector too, or None when they were not read."""
    name = fact(ctx, worker, "kv_connector", "disaggregation_transfer_backend")
    if name is None:
        return None
    children = table(ctx, worker, "kv_connector_children")
    told = [c.get("kv_connector") if isinstance(c, dict) else c for c in children] if isinstance(children, list) else []
    if "multi" in name.casefold() and not told:
        return None
    return (name, *(str(c) for c in told if c))


def uses(ctx: Context, worker: str, kind: str) -> bool | None:
    """Whether a worker has a connector whose name holds `kind`, case aside, or None when its connectors were not read."""
    names = connectors(ctx, worker)
    return None if names is None else any(kind in name.casefold() for name in names)


def side_channel(ctx: Context, worker: Worker) -> bool | None:
    """Whether a worker has the side channel of vLLM's NIXL connector; SGLang meets its peers at a bootstrap port."""
    return False if worker.engine == "sglang" else uses(ctx, worker.id, "nixl")


def uses_ucx(ctx: Context, worker: str) -> bool | None:
    """Whether a worker moves KV by NIXL over UCX, NIXL's backend unless others are named."""
    nixl = uses(ctx, worker, "nixl")
    backends = leaf(ctx, worker, "backends")
    return nixl if not nixl or backends is None else "ucx" in backends.casefold()


def has_rdma(tls: str) -> bool | None:
    """Whether a value of UCX_TLS allows an RDMA transport; None when it leaves the choice to UCX."""
    if tls.strip().casefold() in _ALL:
        return None
    barred = tls.strip().startswith("^")
    named = {_base(entry) for entry in listed(tls.strip().removeprefix("^"))}
    if barred:
        return False if "ib" in named or {"rc", "ud", "dc"} <= named else None
    return None if "all" in named else bool(named & _RDMA)


def allows(tls: str, *transports: str) -> bool:
    """Whether a value of UCX_TLS lets UCX use one of these transports."""
    text = tls.strip().casefold()
    named = {entry.lstrip("\\").partition(":")[0] for entry in listed(text.removeprefix("^"))}
    if text in _ALL or "all" in named:
        return True
    return not named & set(transports) if text.startswith("^") else bool(named & set(transports))


def _base(entry: str) -> str:
    return re.split(r"[_:]", entry.lstrip("\\"))[0]


def fabric(ctx: Context, worker: str) -> Fabric:
    """Return whether a worker's KV is meant to travel over RDMA."""
    protocol = fact(ctx, worker, "MC_PROTOCOL", "mooncake_protocol", "protocol")
    if uses(ctx, worker, "mooncake") and not uses(ctx, worker, "nixl"):
        # The connector takes RDMA where no protocol is given (vLLM 0.32.0, mooncake_connector.py).
        return Fabric(
            (protocol or "rdma").casefold() == "rdma", f"Mooncake's protocol is {protocol or 'rdma (default)'}"
        )
    if uses_ucx(ctx, worker) is False and uses(ctx, worker, "nixl"):
        return Fabric(True, f"NIXL's backends are {leaf(ctx, worker, 'backends')}")
    tls, devices, ports = env(ctx, worker, "UCX_TLS"), env(ctx, worker, "UCX_NET_DEVICES"), rdma_ports(ctx, worker)
    if ports == ():
        return Fabric(False, "the host has no RDMA device")
    if devices and all(d == "lo" for d in listed(devices)):
        return Fabric(False, f"UCX_NET_DEVICES is {devices}")
    if tls is None:
        return Fabric(None, "neither UCX_TLS nor that the host has no RDMA device is known", "UCX_TLS")
    named = has_rdma(tls)
    if named is not None:
        return Fabric(named, f"UCX_TLS is {tls}")
    if ports is None:
        return Fabric(None, "UCX chooses its transports itself and the host's RDMA devices were not read", "host.rdma")
    if devices and listed(devices) != ("all",):
        chosen = any(p.name.casefold() in listed(devices) or p.name.split(":")[0] in listed(devices) for p in ports)
        return Fabric(chosen, f"UCX_NET_DEVICES is {devices}")
    return Fabric(True, "UCX may use every transport and the host has RDMA devices")


def used_ports(ctx: Context, worker: str) -> tuple[RdmaPort, ...]:
    """Return the RDMA ports a worker may use: those UCX_NET_DEVICES names, else all."""
    ports = rdma_ports(ctx, worker) or ()
    named = listed(env(ctx, worker, "UCX_NET_DEVICES") or "")
    if not named or "all" in named:
        return ports
    return tuple(p for p in ports if p.name.casefold() in named or p.name.split(":")[0].casefold() in named)


def over_rdma(ctx: Context, workers: Iterable[Worker]) -> tuple[list[Worker], dict[str, Fabric], list[str]]:
    """Return the workers whose KV travels over RDMA, what is not known of others, and why the rest does not."""
    yes: list[Worker] = []
    unknown: dict[str, Fabric] = {}
    no: list[str] = []
    for worker in workers:
        path = fabric(ctx, worker.id)
        if path.rdma:
            yes.append(worker)
        elif path.rdma is None:
            unknown[worker.id] = path
        else:
            no.append(f"{worker.id}: {path.why}")
    return yes, unknown, no
