"""What must hold on this host before anything is started."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from pdops.clock import WallClock
from pdops.diagnose.checks import PREFLIGHT
from pdops.diagnose.preflight import Outcome as Judged
from pdops.diagnose.preflight_report import CheckOutcome, report
from pdops.diagnose.preflight_run import run_preflight
from pdops.model.series import Window
from pdops.model.times import rfc3339
from pdops.model.view import View
from pdops.reference.ports import port_free
from pdops.reference.running import Running
from pdops.reference.spec import LOOPBACK, Profile
from pdops.sequence.run import Outcome
from pdops.sources.facts.collected import Collected
from pdops.sources.facts.planned import collect_planned
from pdops.sources.inventory import load_inventory

ENGINE_BYTES = 2 << 30
"""Memory a CPU engine with the tiny model takes while it starts: 1.5 GB measured, and room."""
_SHM_BYTES = 256 << 20
_DISK_BYTES = 1 << 30
_CLOCK = WallClock()


def look(running: Running) -> Outcome:
    """Look at the host, then at what the engines are going to be started with; every shortcoming is named."""
    wrong = _host(running)
    if wrong:
        return Outcome(False, "; ".join(wrong), fatal=True)
    checks = _checks(running)
    failed = [c for c in checks if c.status is Judged.FAIL]
    if failed:
        return Outcome(False, "; ".join(_told(c) for c in failed)[:600], fatal=True)
    counts = Counter(c.status for c in checks)
    return Outcome(True, f"{counts[Judged.OK]} checks good, {counts[Judged.UNKNOWN]} can be told only when engines run")


def _host(running: Running) -> list[str]:
    """Return what this host does not give: ports, memory, shared memory, space, each with the two values."""
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
    return wrong


def _checks(running: Running) -> tuple[CheckOutcome, ...]:
    """Judge the command lines and environments the engines will have, as `pdops preflight` judges those they have."""
    cluster = load_inventory(running.inventory).cluster
    facts = Collected()
    for engine in running.spec.engines:
        worker = cluster.get(engine.id)
        assert worker is not None, "the inventory is written from the same plan"
        argv, environ = running.planned(engine)
        # Ports of a namespace cannot be looked at from here, and nobody else listens there.
        ports = () if engine.namespace is not None or running.alive(engine.id) else (engine.port, engine.side_port)
        facts.add(collect_planned(worker, argv, environ, ports=ports))
    # What this process sees of devices is not what an engine in a namespace of its own will see.
    apart = {e.id for e in running.spec.engines if e.namespace is not None}
    known = {
        worker: {k: v for k, v in values.items() if worker not in apart or k != "host.net_devices"}
        for worker, values in facts.facts.items()
    }
    now = _CLOCK.now()
    view = View(cluster=cluster, at_s=now, start_s=now, now=Window(now, now), base=None, series={}, facts=known)
    # What the router and the store say can only be known once they run.
    chosen = [c for c in PREFLIGHT if not c.meta.id.startswith("startup/")]
    found = report(run_preflight(view, chosen), cluster=cluster.name, at=rfc3339(now), unread=(), notes=())
    return found.checks


def _told(check: CheckOutcome) -> str:
    values = ", ".join(f"{v.option} {v.value}" + (f" on {v.scope.id}" if v.scope else "") for v in check.values)
    return f"{check.id}: {values}; {' '.join(check.next[:1])}"


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
