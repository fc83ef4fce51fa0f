"""Read the machine a local worker runs on: memory, limits, devices, ports. Pure parsers, and a reader of /proc and /sys."""

from __future__ import annotations

import csv
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pdops.sources.facts.collected import Collected
from pdops.sources.facts.devices import MOST, line_of, read_net_device, read_rdma
from pdops.sources.facts.process import PROC, ProcReader

MODULES = frozenset(
    {"nvidia_peermem", "nv_peer_mem", "nvidia", "ib_core", "ib_uverbs", "mlx5_ib", "mlx5_core", "efa", "gdrdrv"}
)
"""Kernel modules that matter for GPU and RDMA transfers."""
_LIMITS = {"Max locked memory": "host.memlock_bytes", "Max open files": "host.nofile"}
_GPU_QUERY = ("index", "name", "memory.total", "memory.free", "compute_cap")
_GPU_TIMEOUT_S = 10.0
_DRIVER = Path("/proc/driver/nvidia")
_SHM = "/dev/shm"  # noqa: S108  the mount point that transfers use


class HostReader:
    """Reads the machine through mounted /proc and /sys; other roots and commands in tests.

    Args:
        gpus: returns the output of nvidia-smi, or None where there is none.
    """

    def __init__(
        self, proc: Path = PROC, sys: Path = Path("/sys"), gpus: Callable[[], str | None] | None = None
    ) -> None:
        self._proc, self._sys = proc, sys
        self._gpus = gpus or nvidia_smi
        self._machine: tuple[dict[str, str], dict[str, str]] | None = None

    def collect(self, worker: str, pid: int | None, ports: Iterable[int] = ()) -> Collected:
        """Return the facts of the machine as the process `pid` has it, or as this process has it without one.

        Limits, namespaces and net devices are those of the process; the rest is the machine's.
        """
        out = Collected()
        facts, unread = self._of_machine()
        out.put(worker, facts)
        own: dict[str, str] = {}
        name = "self" if pid is None else str(pid)
        reads: tuple[tuple[str, Callable[[], dict[str, str]]], ...] = (
            ("host.memlock_bytes", lambda: parse_limits(self._text(name, "limits"))),
            ("host.pid_namespace", lambda: {"host.pid_namespace": os.readlink(self._at(name, "ns/pid"))}),
            ("host.net_devices", lambda: {"host.net_devices": json.dumps(self._net(name), sort_keys=True)}),
        )
        for key, read in reads:
            try:
                own |= read()
            except OSError as error:
                unread = {**unread, key: (error.strerror or str(error)).lower()}
        out.put(worker, own | self._ports(pid, ports))
        for key, why in unread.items():
            out.miss(worker, key, why)
        return out

    def _of_machine(self) -> tuple[dict[str, str], dict[str, str]]:
        if self._machine is not None:
            return self._machine
        facts = {"host.name": socket.gethostname(), "host.kernel": os.uname().release, "host.clock_offset_s": "0"}
        unread: dict[str, str] = {}
        files: tuple[tuple[str, str, Callable[[str], dict[str, str]]], ...] = (
            ("host.memory_total_bytes", "meminfo", parse_meminfo),
            ("host.max_map_count", "sys/vm/max_map_count", lambda t: {"host.max_map_count": t.strip()}),
            ("host.ephemeral_ports", "sys/net/ipv4/ip_local_port_range", parse_port_range),
        )
        for key, name, parse in files:
            try:
                facts |= parse((self._proc / name).read_text("utf-8", "replace"))
            except OSError as error:
                unread[key] = (error.strerror or str(error)).lower()
        try:
            # Drivers that are built in are there as well, and in no list of loaded ones.
            facts["host.modules"] = ",".join(sorted(MODULES & set(os.listdir(self._sys / "module"))))
        except OSError as error:
            unread["host.modules"] = (error.strerror or str(error)).lower()
        try:
            shm = os.statvfs(_SHM)
            facts["host.shm_total_bytes"] = str(shm.f_blocks * shm.f_frsize)
            facts["host.shm_free_bytes"] = str(shm.f_bavail * shm.f_frsize)
        except OSError as error:
            unread["host.shm_total_bytes"] = (error.strerror or str(error)).lower()
        facts["host.rdma"] = json.dumps(read_rdma(self._sys / "class" / "infiniband"), sort_keys=True)
        limit = read_cgroup_limit(self._sys / "fs" / "cgroup")
        if limit is not None and limit < int(facts.get("host.memory_total_bytes", limit + 1)):
            facts["host.memory_limit_bytes"] = str(limit)
        listing = self._gpus()
        if listing is None:
            unread["host.gpus"] = "nvidia-smi is not here or gave no answer"
        else:
            facts["host.gpus"] = json.dumps(parse_gpus(listing), sort_keys=True)
        self._machine = facts, unread
        return self._machine

    def _ports(self, pid: int | None, ports: Iterable[int]) -> dict[str, str]:
        reader = ProcReader(self._proc)
        facts = {}
        for port in ports:
            holder = reader.listener("", port, beside="self" if pid is None else str(pid))
            if holder is None:
                facts[f"host.port.{port}"] = "free"
            elif pid is not None and (holder == pid or holder in set(reader.descendants(pid))):
                facts[f"host.port.{port}"] = "ours"
            else:
                with suppress(OSError):
                    facts[f"host.port.{port}"] = f"taken by {self._text(str(holder), 'comm').strip()} (pid {holder})"
        return facts

    def _net(self, name: str) -> dict[str, dict[str, Any]]:
        # A worker in a network namespace has a /sys of its own; only its root shows it.
        inside = self._at(name, "root/sys/class/net")
        there = inside if inside.is_dir() else self._sys / "class" / "net"
        return {entry.name: read_net_device(entry) for entry in sorted(there.iterdir())[:MOST]}

    def _at(self, name: str, what: str) -> Path:
        return self._proc / name / what

    def _text(self, name: str, what: str) -> str:
        return self._at(name, what).read_text("utf-8", "replace")


def parse_meminfo(text: str) -> dict[str, str]:
    """Return total and available memory from /proc/meminfo."""
    wanted = {"MemTotal": "host.memory_total_bytes", "MemAvailable": "host.memory_available_bytes"}
    facts = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        parts = rest.split()
        if name in wanted and parts and parts[0].isdigit():
            facts[wanted[name]] = str(int(parts[0]) * 1024)
    return facts


def parse_limits(text: str) -> dict[str, str]:
    """Return the soft limits of locked memory (bytes) and open files from /proc/PID/limits."""
    facts = {}
    for line in text.splitlines():
        for name, key in _LIMITS.items():
            if line.startswith(name):
                facts[key] = line.removeprefix(name).split()[0]
    return facts


def parse_port_range(text: str) -> dict[str, str]:
    """Return the ephemeral ports as `low-high`."""
    ends = text.split()
    return {"host.ephemeral_ports": "-".join(ends)} if len(ends) == 2 else {}


def parse_gpus(listing: str) -> list[dict[str, Any]]:
    """Return the GPUs of nvidia-smi's CSV (index, name, MiB total, MiB free, compute capability)."""
    gpus = []
    for row in csv.reader(listing.splitlines(), skipinitialspace=True):
        if len(row) < 4 or not row[0].isdigit():
            continue
        gpu: dict[str, Any] = {"index": int(row[0]), "name": row[1]}
        for key, cell in (("memory_total_bytes", row[2]), ("memory_free_bytes", row[3])):
            gpu[key] = int(cell) << 20 if cell.isdigit() else None
        gpus.append(gpu)
    return gpus


def nvidia_smi() -> str | None:
    """Ask nvidia-smi for its GPUs; empty where no driver is loaded, None where it is missing, fails or takes over 10 s."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None if _DRIVER.exists() else ""
    command = [program, f"--query-gpu={','.join(_GPU_QUERY)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GPU_TIMEOUT_S, check=False)  # noqa: S603  a fixed command
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def read_cgroup_limit(folder: Path) -> int | None:
    """Return the memory limit of this control group in bytes, or None when there is none."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        text = line_of(folder / name)
        if text and text.isdigit():
            return int(text)
    return None


def offset_by_date(date_s: float, sent_s: float, received_s: float) -> float | None:
    """Return how far a server's clock is at least from ours in seconds, by the Date of its answer, or None.

    Date has whole seconds and servers keep it for up to a second, so a small offset cannot be seen: None.
    """
    least, most = date_s - received_s, date_s + 2.0 - sent_s
    return least if least > 0 else most if most < 0 else None


def free_memory(facts: Mapping[str, str]) -> int | None:
    """Return the memory available to a worker in bytes, its control group's limit included, or None."""
    values = [
        facts[k] for k in ("host.memory_available_bytes", "host.memory_limit_bytes") if facts.get(k, "").isdigit()
    ]
    return min(map(int, values), default=None)
