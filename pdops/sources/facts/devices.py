"""Read network and RDMA devices from /sys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MOST = 64
"""Devices of a kind that are read."""
_MAX_GIDS = 32
_NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


def read_rdma(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the RDMA devices under /sys/class/infiniband by port; empty where there is none."""
    if not folder.is_dir():
        return {}
    devices: dict[str, dict[str, dict[str, Any]]] = {}
    for device in sorted(folder.iterdir())[:MOST]:
        ports = device / "ports"
        devices[device.name] = (
            {port.name: _rdma_port(device, port) for port in sorted(ports.iterdir())} if ports.is_dir() else {}
        )
    return devices


def _rdma_port(device: Path, port: Path) -> dict[str, Any]:
    gids = []
    if (port / "gids").is_dir():
        entries = sorted((e for e in (port / "gids").iterdir() if e.name.isdigit()), key=lambda e: int(e.name))
        for entry in entries[:_MAX_GIDS]:
            gid = line_of(entry)
            if gid and gid != _NO_GID:
                kind = line_of(port / "gid_attrs" / "types" / entry.name)
                gids.append({"index": int(entry.name), "gid": gid, "type": kind})
    state, layer = line_of(port / "state"), line_of(port / "link_layer")
    nets = device / "device" / "net"
    mtus = [line_of(net / "mtu") for net in sorted(nets.iterdir())] if nets.is_dir() else []
    return {
        # The kernel writes `4: ACTIVE`.
        "state": None if state is None else state.rpartition(":")[2].strip(),
        "link_layer": layer,
        "rate": line_of(port / "rate"),
        "gids": gids,
        "mtu": next((int(m) for m in mtus if m and m.isdigit()), None),
    }


def read_net_device(folder: Path) -> dict[str, Any]:
    """Return state, MTU and speed (Mbit/s, None where the device tells none) of /sys/class/net/NAME."""
    mtu, speed = line_of(folder / "mtu"), line_of(folder / "speed")
    return {
        "state": line_of(folder / "operstate"),
        "mtu": int(mtu) if mtu and mtu.isdigit() else None,
        "speed_mbits": int(speed) if speed and speed.isdigit() else None,
    }


def line_of(path: Path) -> str | None:
    """Return a file's text without blanks around it, or None when it cannot be read."""
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return None
