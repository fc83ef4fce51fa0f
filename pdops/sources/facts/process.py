"""Read how a local engine, router or store process was started, from /proc: its command line and environment."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pdops.model.cluster import Role
from pdops.sources.facts import router
from pdops.sources.facts.arguments import Arguments, of_shell, parse
from pdops.sources.facts.collected import Collected

PROC = Path("/proc")
_MAX_BYTES = 1 << 20
_MAX_FAMILY = 64
_KEPT = (
    "UCX_",
    "NIXL_",
    "VLLM_",
    "MC_",
    "MOONCAKE_",
    "LMCACHE_",
    "NCCL_",
    "FI_",
    "SGLANG_",
    "DYN_",
    "PYTORCH_",
    "HF_H",
)
_KEPT_NAMES = frozenset(
    {"PYTHONHASHSEED", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LD_PRELOAD", "POD_IP", "NODE_NAME"}
)
_LISTEN = "0A"
_ROUTER = {
    "deadline": "deadline_s",
    "prefill_timeout": "prefill_timeout_s",
    "first_token_timeout": "first_token_timeout_s",
    "stream_idle_timeout": "stream_idle_timeout_s",
    "request_timeout_secs": "deadline_s",
    "retry_max_retries": "retries",
    "retry_initial_backoff_ms": "retry_backoff_ms",
    "cb_timeout_duration_secs": "breaker_recovery_s",
    "answer_timeout": "answer_timeout_s",
    "cb_failure_threshold": "breaker_threshold",
    "queue_size": "queue_limit",
}
"""Options of pdops-router and vllm-router by the names the checks use."""
_STORE = {"enable_ha": "ha_mode", "client_ttl": "client_ttl_s"}
"""Options of mooncake_master by the names the checks use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process as it was started; `environ` of a family has what descendants were given beside it."""

    pid: int
    argv: tuple[str, ...]
    environ: Mapping[str, str]


class ProcReader:
    """Looks at processes through a mounted /proc; `root` is another one in tests."""

    def __init__(self, root: Path = PROC) -> None:
        self.root = root

    def read(self, pid: int) -> Process:
        """Return a process with what its descendants were given in addition.

        An engine sets transport options for its workers after it has started, which only their environments show.

        Raises:
            OSError: it is gone, or belongs to somebody else.
        """
        environ = parse_environ(self._bytes(pid, "environ"))
        for child in list(self.descendants(pid))[:_MAX_FAMILY]:
            with suppress(OSError):
                environ = {**parse_environ(self._bytes(child, "environ")), **environ}
        return Process(pid=pid, argv=parse_argv(self._bytes(pid, "cmdline")), environ=environ)

    def pids(self) -> list[int]:
        """Return the process ids there are, ascending."""
        with suppress(OSError):
            return sorted(int(entry.name) for entry in self.root.iterdir() if entry.name.isdigit())
        return []

    def descendants(self, pid: int) -> Iterator[int]:
        """Yield the ids of all processes below one."""
        children: dict[int, list[int]] = {}
        for other in self.pids():
            with suppress(OSError, ValueError, IndexError):
                stat = self._bytes(other, "stat").decode("utf-8", "replace")
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(other)
        todo = [pid]
        while todo:
            for child in children.get(todo.pop(), ()):
                yield child
                todo.append(child)

    def listener(self, address: str, port: int, *, beside: str | None = None) -> int | None:
        """Return the process that listens there, or None.

        An empty address is any. With `beside`, a process id or `self`, only the network namespace of that process is
        looked at, else all that can be seen.
        """
        seen: dict[str, set[str]] = {}
        only = None if beside is None else self._namespace(beside)
        for pid in self.pids():
            namespace = self._namespace(str(pid))
            if only is not None and namespace != only:
                continue
            if namespace not in seen:
                tables = [self._quiet(pid, f"net/{name}") for name in ("tcp", "tcp6")]
                seen[namespace] = {inode for table in tables for inode in listening(table, address, port)}
            if seen[namespace] and self._holds(pid, seen[namespace]):
                return pid
        return None

    def same_network(self, pid: int) -> bool:
        """Whether a process has the network namespace of this one; False when that cannot be seen."""
        own = self._namespace("self")
        return own != "self" and self._namespace(str(pid)) == own

    def _namespace(self, name: str) -> str:
        try:
            return os.readlink(self.root / name / "ns" / "net")
        except OSError:
            return name

    def _holds(self, pid: int, inodes: set[str]) -> bool:
        with suppress(OSError), os.scandir(self.root / str(pid) / "fd") as entries:
            for entry in entries:
                with suppress(OSError):
                    if os.readlink(entry.path).removeprefix("socket:[").rstrip("]") in inodes:
                        return True
        return False

    def _bytes(self, pid: int, name: str) -> bytes:
        with open(self.root / str(pid) / name, "rb") as file:
            return file.read(_MAX_BYTES)

    def _quiet(self, pid: int, name: str) -> str:
        try:
            return self._bytes(pid, name).decode("ascii", "replace")
        except OSError:
            return ""


def parse_argv(raw: bytes) -> tuple[str, ...]:
    """Split the content of /proc/PID/cmdline."""
    return tuple(raw.decode("utf-8", "replace").rstrip("\0").split("\0")) if raw else ()


def parse_environ(raw: bytes) -> dict[str, str]:
    """Split the content of /proc/PID/environ."""
    pairs = (entry.partition("=") for entry in raw.decode("utf-8", "replace").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def listening(table: str, address: str, port: int) -> list[str]:
    """Return the socket inodes that listen on a port at that address or at all, from /proc/net/tcp or tcp6."""
    found = []
    for line in table.splitlines()[1:]:
        parts = line.split()
        if len(parts) < 10 or parts[3] != _LISTEN:
            continue
        host, _, number = parts[1].rpartition(":")
        if int(number, 16) == port and _covers(_address(host), address):
            found.append(parts[9])
    return found


def environment_facts(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that concern an engine or its transports; others are nobody's business."""
    return {k: v for k, v in environ.items() if k.startswith(_KEPT) or k in _KEPT_NAMES}


def arguments_of(role: Role, argv: Sequence[str]) -> Arguments:
    """Return the options of a worker's command line by the names that checks use."""
    read = parse(of_shell(argv))
    names = {Role.ROUTER: _ROUTER, Role.KVSTORE: _STORE}.get(role, {})
    read.options = {names.get(k, k): v for k, v in read.options.items()}
    read.unread = {names.get(k, k): v for k, v in read.unread.items()}
    if role is Role.ROUTER and read.options.get("disable_retries") == "true":
        read.options["retries"] = "0"
    if role is Role.ROUTER and router.is_own(argv):
        settled = router.with_defaults(read.options)
        read.options = {k: v for k, v in settled.items() if k not in read.unread}
    return read


def collect(worker: str, role: Role, process: Process) -> Collected:
    """Return the facts of one worker's process."""
    out = Collected()
    read = arguments_of(role, process.argv)
    out.put(worker, {**read.options, **environment_facts(process.environ)})
    for key, why in read.unread.items():
        out.miss(worker, key, why)
    return out


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    # The kernel prints each 32-bit word of an address in the machine's own order.
    words = [bytes.fromhex(text[i : i + 8])[::-1] for i in range(0, len(text), 8)]
    return ipaddress.ip_address(b"".join(words))


def _covers(bound: ipaddress.IPv4Address | ipaddress.IPv6Address, address: str) -> bool:
    if isinstance(bound, ipaddress.IPv6Address) and bound.ipv4_mapped is not None:
        bound = bound.ipv4_mapped
    return not address or bound.is_unspecified or str(bound) == address
