"""The devices of a worker's host, as facts list them: GPUs, RDMA ports, network devices."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pdops.diagnose.context import Context
from pdops.diagnose.hosts import table
from pdops.diagnose.preflight import fact

_MOST = 64


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; memory in bytes, None where it was not told."""

    index: int
    total: float | None
    free: float | None


@dataclass(frozen=True, slots=True)
class Gid:
    """One address of an RDMA port; `kind` as the kernel writes it (`RoCE v2`), empty where it was not told."""

    index: int
    gid: str
    kind: str = ""

    @property
    def routable(self) -> bool:
        """Whether peers in other networks reach it: RoCE v2, and neither empty nor link-local."""
        text = self.gid.strip().casefold()
        return (
            bool(text.strip("0:")) and not text.startswith("fe80") and (not self.kind or "v2" in self.kind.casefold())
        )


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """One port of an RDMA device, as `DEVICE:PORT`; `mtu` in bytes."""

    name: str
    state: str
    link_layer: str
    gids: tuple[Gid, ...]
    mtu: str

    @property
    def active(self) -> bool:
        """Whether the port carries traffic; sysfs writes `4: ACTIVE`."""
        return "ACTIVE" in self.state.upper() and "DEFER" not in self.state.upper()


def gpus(ctx: Context, worker: str) -> tuple[Gpu, ...] | None:
    """Return the GPUs an engine uses, or None when that was not read."""
    if "cpu" in (fact(ctx, worker, "VLLM_TARGET_DEVICE"), fact(ctx, worker, "device")):
        return ()
    cards = table(ctx, worker, "host.gpus")
    if not isinstance(cards, list):
        # A pod spec tells how many, and nothing of their memory.
        count = fact(ctx, worker, "host.gpu_count") or ""
        return (
            tuple(Gpu(i, None, None) for i in range(int(count))) if count.isdecimal() and int(count) <= _MOST else None
        )
    found = tuple(
        Gpu(index, _bytes(g.get("memory_total_bytes")), _bytes(g.get("memory_free_bytes")))
        for place, g in enumerate(cards)
        if isinstance(g, dict) and isinstance(index := g.get("index", place), int)
    )
    visible = fact(ctx, worker, "CUDA_VISIBLE_DEVICES")
    if visible is None or not re.fullmatch(r"\d+(,\d+)*", visible.replace(" ", "")):
        return found
    chosen = {int(i) for i in visible.split(",")}
    return tuple(g for g in found if g.index in chosen)


def _bytes(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def rdma_ports(ctx: Context, worker: str) -> tuple[RdmaPort, ...] | None:
    """Return the RDMA ports of a worker's host, or None when they were not read."""
    devices = table(ctx, worker, "host.rdma")
    if not isinstance(devices, dict):
        return None
    return tuple(
        RdmaPort(
            name=f"{device}:{number}",
            state=str(port.get("state") or ""),
            link_layer=str(port.get("link_layer") or ""),
            gids=_gids(port.get("gids")),
            mtu=str(port.get("mtu") or ""),
        )
        for device, ports in sorted(devices.items())
        if isinstance(ports, dict)
        for number, port in sorted(ports.items())
        if isinstance(port, dict)
    )


def _gids(told: Any) -> tuple[Gid, ...]:
    found = []
    for place, entry in enumerate(told if isinstance(told, list) else ()):
        if isinstance(entry, dict):
            index = entry.get("index", place)
            found.append(
                Gid(
                    index if isinstance(index, int) else place,
                    str(entry.get("gid") or ""),
                    str(entry.get("type") or ""),
                )
            )
        else:
            found.append(Gid(place, str(entry)))
    return tuple(found)


def net_devices(ctx: Context, worker: str) -> dict[str, dict[str, Any]] | None:
    """Return the network devices of a worker's host, or None when they were not read."""
    devices = table(ctx, worker, "host.net_devices")
    if not isinstance(devices, dict):
        return None
    return {str(name): device for name, device in devices.items() if isinstance(device, dict)}
