"""What must hold on this host before anything is started."""

from __future__ import annotations

import shutil
from pathlib import Path

from pdops.reference.ports import port_free
from pdops.reference.running import Running
from pdops.reference.spec import LOOPBACK, Profile
from pdops.sequence.run import Outcome

ENGINE_BYTES = 2 << 30
"""Memory a CPU engine with the tiny model takes while it starts: 1.5 GB measured, and room."""
_SHM_BYTES = 256 << 20
_DISK_BYTES = 1 << 30


def look(running: Running) -> Outcome:
    """Look at ports, memory, shared memory and space; every shortcoming is named with the two values."""
    spec = running.spec
    wrong = []
    if running.network is None:
        ports = {e.id: (e.port, e.side_port) for e in spec.engines if not running.alive(e.id)}
        if spec.router is not None and not running.alive(spec.router.id):
            ports[spec.router.id] = (spec.router.port, spec.router.port)
        wrong += [
            f"port {p} of {w} is taken" for w, both in ports.items() for p in set(both) if not port_free(LOOPBACK, p)
        ]
    if spec.profile is Profile.CPU:
        to_start = sum(1 for e in spec.engines if not running.alive(e.id))
        free = available_bytes()
        lent = spec.store.segment_bytes + spec.store.buffer_bytes if spec.store is not None else 0
        need = to_start * (ENGINE_BYTES + lent)
        if free is not None and free < need:
            wrong.append(f"{to_start} engines need about {need / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free")
    for folder, need in ((running.home.path, _DISK_BYTES), (Path("/dev/shm"), _SHM_BYTES)):  # noqa: S108  engines share memory there
        if folder.exists() and (have := shutil.disk_usage(folder).free) < need:
            wrong.append(f"{folder} has {have / 1e6:.0f} MB free, {need / 1e6:.0f} MB are needed")
    if wrong:
        return Outcome(False, "; ".join(wrong), fatal=True)
    return Outcome(True, "ports, memory, shared memory and disk suffice")


def available_bytes() -> int | None:
    """Return the memory that programs may still take, or None where that is not told."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = {line.partition(":")[0]: line.split()[1] for line in lines if ":" in line}
    host = int(found["MemAvailable"]) << 10 if "MemAvailable" in found else None
    group = _group_free()
    return min(v for v in (host, group) if v is not None) if host is not None or group is not None else None


def _group_free() -> int | None:
    """Return what a container's own limit leaves, or None without one."""
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            most, now = Path(limit).read_text().strip(), Path(used).read_text().strip()
        except OSError:
            continue
        if most.isdigit() and now.isdigit() and int(most) < 1 << 60:
            return int(most) - int(now)
    return None
