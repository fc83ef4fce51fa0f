"""Network namespaces of a deployment on one host: each worker's control and KV traffic on links of their own.

Each worker has one namespace with two devices. `ctl` (HTTP, side channel, metrics) is on a bridge of the host, which has an
address there; `kv` is on a bridge in a namespace of its own, the fabric. So a worker's KV can be broken alone while its
metrics can still be read. Nothing is routed: a namespace reaches the host and its own deployment only.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pdops.errors import DeploymentError, UsageError
from pdops.reference import iproute, link_faults
from pdops.reference.netlinks import CONTROL_SUBNET, CTL, FABRIC, HOST_NUMBERS, KV, Links, subnet_of

_LOCK = Path("/run/pdops-network.lock")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes over a worker's KV device since it was made, headers included; `dropped_packets` by a fault in force."""

    rx_bytes: int
    tx_bytes: int
    dropped_packets: int


class Network:
    """The namespaces of one deployment; what is there is read from the kernel, nothing is kept in memory.

    Args:
        name: the deployment.
        workers: ids of those that get a namespace, the store's master among them where there is one.

    Raises:
        UsageError: a name or id that cannot be one.
    """

    def __init__(self, name: str, workers: Sequence[str]) -> None:
        for text in (name, *workers):
            if not _ID.fullmatch(text):
                raise UsageError(f"{text[:70]!r} cannot be part of a namespace's name", hint="letters, digits, . _ -")
        if FABRIC in workers or len(set(workers)) != len(workers):
            raise UsageError(
                "worker ids of a network differ, and none is 'fabric'",
                where=", ".join(workers),
                hint="rename the one that is there twice, or is called fabric",
            )
        if len(workers) > len(HOST_NUMBERS):
            why = f"the most is {len(HOST_NUMBERS)}"
            raise UsageError(f"{len(workers)} workers are too many", why=why, hint="start fewer engines")
        self.name, self.workers = name, tuple(workers)
        self._links = Links(name, self.workers)

    @staticmethod
    def available() -> tuple[bool, str]:
        """Return whether namespaces can be made here, and what is missing if not."""
        return iproute.available()

    def namespace(self, worker: str) -> str:
        """Return the name of a worker's namespace."""
        return self._links.namespace(worker)

    @property
    def fabric(self) -> str:
        """The namespace that joins the KV links."""
        return self._links.fabric

    def up(self) -> None:
        """Make what is missing; workers that are there already are left alone.

        Raises:
            DeploymentError: not allowed, tools missing, no free subnet, or a name taken by another deployment. What this
                call made is taken away again.
        """
        ok, why = self.available()
        if not ok:
            raise DeploymentError("cannot make network namespaces", why=why, hint="or take --network loopback")
        with _locked():
            there = set(self._links.namespaces())
            try:
                number = self._links.join_control()
                self._links.join_fabric(there)
                for worker in self.workers:
                    if not self._complete(worker, there):
                        self._links.remove(worker)
                        self._links.add(worker, number)
            except BaseException:
                made = set(self._links.namespaces()) - there
                for worker in self.workers:
                    if self.namespace(worker) in made:
                        self._links.remove(worker)
                if not there:
                    self._links.remove_all()
                raise

    def down(self) -> None:
        """Remove every namespace and link of this deployment, of workers it no longer has too; nothing of another's.

        Raises:
            DeploymentError: something could not be removed.
        """
        if iproute.tools_missing():
            return
        with _locked():
            self._links.remove_all()

    def exists(self) -> bool:
        """Whether all of it is there."""
        if iproute.tools_missing():
            return False
        there = set(self._links.namespaces())
        return (
            self._links.number() is not None
            and self.fabric in there
            and all(self._complete(worker, there) for worker in self.workers)
        )

    def leftovers(self) -> tuple[str, ...]:
        """Return the names of all that is there of this deployment, sorted; empty after `down`."""
        bridge = (self._links.bridge,) if self._links.number() is not None else ()
        return tuple(sorted((*self._links.namespaces(), *bridge, *self._links.host_links())))

    def address(self, worker: str) -> str:
        """Return a worker's address for HTTP, side channel and metrics, reachable from the host.

        Raises:
            DeploymentError: the network is not up.
        """
        return self._address(worker, CTL)

    def kv_address(self, worker: str) -> str:
        """Return a worker's address for KV, reachable from the other workers only.

        Raises:
            DeploymentError: the network is not up.
        """
        return self._address(worker, KV)

    def host_address(self) -> str:
        """Return the host's own address on the control bridge.

        Raises:
            DeploymentError: the network is not up.
        """
        number = self._links.number()
        if number is None:
            raise self._not_up(self._links.bridge)
        return str(subnet_of(CONTROL_SUBNET, number)[1])

    def enter(self, worker: str) -> list[str]:
        """Return what is put before a command line to run it as that worker; the process id stays the same."""
        self._known(worker)
        return ["ip", "netns", "exec", self.namespace(worker)]

    def processes(self, worker: str) -> tuple[int, ...]:
        """Return the ids of processes that run in a worker's namespace."""
        found = iproute.run(["ip", "netns", "pids", self.namespace(worker)], check=False)
        return tuple(int(line) for line in found.split())

    def slow(self, worker: str, bits_per_s: float, latency_ms: float = 400.0) -> None:
        """Limit a worker's KV link in both directions; packets that would wait longer than `latency_ms` are dropped."""
        for netns, device in self._ends(worker):
            iproute.run_all(link_faults.slow(netns, device, bits_per_s, latency_ms))

    def lossy(self, worker: str, percent: float) -> None:
        """Drop a share of the packets of a worker's KV link at random, in each direction."""
        self._drop(worker, percent)

    def cut(self, worker: str) -> None:
        """Drop all packets of a worker's KV link; both ends see silence, the devices stay up."""
        self._drop(worker, 100.0)

    def clear(self, worker: str) -> None:
        """Lift every fault of a worker's KV link; harmless without one."""
        for netns, device in self._ends(worker):
            iproute.run_all(link_faults.unslow(netns, device), check=False)
            iproute.run_all(link_faults.undrop(netns, device), check=False)
            iproute.run_all(link_faults.segments(netns, device, link_faults.UNLIMITED_SEGMENTS))
            if self._broken(netns, device):
                raise DeploymentError("a fault is still in force", where=f"{netns} {device}", hint="pdops down")

    def faulty(self, worker: str) -> bool:
        """Whether a fault of a worker's KV link is in force."""
        return any(self._broken(netns, device) for netns, device in self._ends(worker))

    def counters(self, worker: str) -> Traffic:
        """Return the traffic of a worker's KV device; what a cut drops on arrival is counted as received."""
        self._known(worker)
        stats = iproute.query(["ip", "-n", self.namespace(worker), "-s", "-j", "link", "show", "dev", KV])[0]["stats64"]
        dropped = sum(iproute.dropped(link_faults.dropped(*end)[0]) for end in self._ends(worker))
        return Traffic(int(stats["rx"]["bytes"]), int(stats["tx"]["bytes"]), dropped)

    def _drop(self, worker: str, percent: float) -> None:
        for netns, device in self._ends(worker):
            commands = link_faults.drop(netns, device, percent)
            iproute.run_all(link_faults.undrop(netns, device), check=False)
            iproute.run_all([*link_faults.segments(netns, device, 1), *commands])

    def _broken(self, netns: str, device: str) -> bool:
        queues = iproute.query(["tc", "-n", netns, "-j", "qdisc", "show", "dev", device])
        table = iproute.run(link_faults.dropped(netns, device)[0], check=False)
        return any(queue.get("kind") == "tbf" for queue in queues) or bool(table)

    def _ends(self, worker: str) -> tuple[tuple[str, str], tuple[str, str]]:
        """Namespace and device of both ends of a worker's KV link."""
        self._known(worker)
        return (self.namespace(worker), KV), (self.fabric, self._links.port(worker))

    def _known(self, worker: str) -> None:
        if worker not in self.workers:
            raise UsageError(f"no worker {worker!r}", where=self.name, hint=f"it has {', '.join(self.workers)}")

    def _complete(self, worker: str, there: set[str]) -> bool:
        if self.namespace(worker) not in there:
            return False
        try:
            self.address(worker), self.kv_address(worker)
        except DeploymentError:
            return False
        return self._links.port(worker) in self._links.host_links()

    def _address(self, worker: str, device: str) -> str:
        self._known(worker)
        netns = self.namespace(worker)
        for entry in iproute.query(["ip", "-n", netns, "-j", "addr", "show", "dev", device], check=False):
            for address in entry["addr_info"]:
                if address["family"] == "inet" and "UP" in entry["flags"]:
                    return str(address["local"])
        raise self._not_up(f"{netns} {device}")

    def _not_up(self, where: str) -> DeploymentError:
        return DeploymentError(f"the network of {self.name} is not up", where=where, hint="pdops up starts it")


@contextmanager
def _locked() -> Iterator[None]:
    """Let one command at a time change namespaces: two would take the same free subnet."""
    try:
        handle = _LOCK.open("a")
    except OSError as error:
        why, hint = (
            error.strerror or str(error),
            "namespaces are made by root: run it as root, or without --network namespaces",
        )
        raise DeploymentError("cannot take a lock", where=str(_LOCK), why=why, hint=hint) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
