"""Make and remove the namespaces and links of one deployment, and tell them from anybody else's.

Every name begins with ours, and every namespace and device on the host carries an alias that names the deployment: a name
alone does not tell `a` with a worker `b-0` from `a-b` with a worker `0`.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterator

from pdops.errors import DeploymentError, UsageError
from pdops.reference import iproute

PREFIX = "pdops"
"""What every namespace's name begins with."""
FABRIC = "fabric"
CTL, KV = "ctl", "kv"
CONTROL_SUBNET, KV_SUBNET = "10.74.{n}.0/24", "10.75.{n}.0/24"
HOST_NUMBERS = range(2, 255)


class Links:
    """The namespaces and links of a deployment, read from the kernel each time.

    Args:
        name: the deployment.
        workers: ids of those that get a namespace.
    """

    def __init__(self, name: str, workers: tuple[str, ...]) -> None:
        self.name, self.workers = name, workers
        # Device names have at most 15 characters.
        self.bridge = f"{PREFIX}{_digest(name, 8)}"
        self.fabric = self.namespace(FABRIC)

    def namespace(self, worker: str) -> str:
        """Return the name of a worker's namespace."""
        return f"{PREFIX}-{self.name}-{worker}"

    def port(self, worker: str) -> str:
        """Return the name of a worker's ports, the same on the host's bridge and in the fabric."""
        return f"pd{_digest(f'{self.name}/{worker}', 12)}"

    def alias(self, worker: str) -> str:
        """Return what marks a device or namespace as ours."""
        return f"{PREFIX} {self.name} {worker}"

    def owner(self, netns: str) -> str:
        """Return what a namespace says about whose it is; empty when it says nothing, as one half made does."""
        shown = iproute.query(["ip", "-n", netns, "-j", "link", "show", "dev", "lo"], check=False)
        return str(shown[0].get("ifalias", "")) if shown else ""

    def namespaces(self) -> Iterator[str]:
        """Yield those of this deployment: another's name may begin like ours, so each is asked."""
        mine = {self.namespace(worker) for worker in (*self.workers, FABRIC)}
        for netns in iproute.namespaces():
            if netns.startswith(f"{PREFIX}-{self.name}-"):
                owner = self.owner(netns)
                if owner.startswith(self.alias("")) or (not owner and netns in mine):
                    yield netns

    def number(self) -> int | None:
        """Return the number of this deployment's subnets, which is that of its bridge's address; None without a bridge.

        Raises:
            DeploymentError: the bridge is another's.
        """
        for entry in iproute.query(["ip", "-j", "link", "show", "dev", self.bridge], check=False):
            says = entry.get("ifalias", self.alias(FABRIC))
            if says != self.alias(FABRIC):
                hint = "rename or remove it (ip link), or give this deployment another --name"
                raise DeploymentError(
                    "a device has our bridge's name", where=self.bridge, why=f"it says {says!r}", hint=hint
                )
        for entry in iproute.query(["ip", "-j", "addr", "show", "dev", self.bridge], check=False):
            for address in entry["addr_info"]:
                if address["family"] == "inet":
                    return int(address["local"].split(".")[2])
        return None

    def host_links(self) -> list[str]:
        """Return the names of the ports on the host's bridge."""
        links = iproute.query(["ip", "-j", "link", "show", "master", self.bridge], check=False)
        return [entry["ifname"] for entry in links if entry.get("ifname", "").startswith("pd")]

    def join_control(self) -> int:
        """Make the host's bridge unless it is there; return the number of the subnets.

        Raises:
            DeploymentError: no subnet is free, or a command failed.
        """
        number = self.number()
        if number is None:
            iproute.run(["ip", "link", "del", "dev", self.bridge], check=False)
            number = _free_number()
            address = f"{subnet_of(CONTROL_SUBNET, number)[1]}/24"
            iproute.run(["ip", "link", "add", "name", self.bridge, "type", "bridge"])
            iproute.run(["ip", "link", "set", "dev", self.bridge, "alias", self.alias(FABRIC), "addrgenmode", "none"])
            iproute.run(["ip", "addr", "add", address, "dev", self.bridge])
        iproute.run(["ip", "link", "set", "dev", self.bridge, "up"])
        return number

    def join_fabric(self, there: set[str]) -> None:
        """Make the fabric unless it is among the namespaces that are there.

        Raises:
            DeploymentError: a command failed.
        """
        if self.fabric not in there:
            self._make(self.fabric, FABRIC)
        if not iproute.query(["ip", "-n", self.fabric, "-j", "link", "show", "dev", FABRIC], check=False):
            iproute.run(["ip", "-n", self.fabric, "link", "add", "name", FABRIC, "type", "bridge"])
        iproute.run(["ip", "-n", self.fabric, "link", "set", "dev", FABRIC, "addrgenmode", "none"])
        iproute.run(["ip", "-n", self.fabric, "link", "set", "dev", FABRIC, "up"])

    def _make(self, netns: str, worker: str) -> None:
        iproute.run(["ip", "netns", "add", netns])
        iproute.run(["ip", "-n", netns, "link", "set", "dev", "lo", "alias", self.alias(worker), "up"])

    def add(self, worker: str, number: int) -> None:
        """Make a worker's namespace with both its links, at addresses no other has.

        Raises:
            DeploymentError: a command failed.
        """
        netns, port = self.namespace(worker), self.port(worker)
        host = self._free_host()
        self._make(netns, worker)
        iproute.run(["ip", "link", "add", "name", port, "type", "veth", "peer", "name", CTL, "netns", netns])
        iproute.run(["ip", "link", "set", "dev", port, "alias", self.alias(worker), "addrgenmode", "none"])
        iproute.run(["ip", "link", "set", "dev", port, "master", self.bridge, "up"])
        into = ("type", "veth", "peer", "name", KV, "netns", netns)
        iproute.run(["ip", "-n", self.fabric, "link", "add", "name", port, *into])
        iproute.run(["ip", "-n", self.fabric, "link", "set", "dev", port, "addrgenmode", "none"])
        iproute.run(["ip", "-n", self.fabric, "link", "set", "dev", port, "master", FABRIC, "up"])
        for device, subnet in ((CTL, CONTROL_SUBNET), (KV, KV_SUBNET)):
            iproute.run(["ip", "-n", netns, "link", "set", "dev", device, "addrgenmode", "none"])
            iproute.run(["ip", "-n", netns, "addr", "add", f"{subnet_of(subnet, number)[host]}/24", "dev", device])
            iproute.run(["ip", "-n", netns, "link", "set", "dev", device, "up"])

    def _free_host(self) -> int:
        taken = set()
        for netns in self.namespaces():
            for entry in iproute.query(["ip", "-n", netns, "-j", "addr", "show", "dev", CTL], check=False):
                taken |= {int(a["local"].rpartition(".")[2]) for a in entry["addr_info"] if a["family"] == "inet"}
        return next(number for number in HOST_NUMBERS if number not in taken)

    def remove(self, worker: str) -> None:
        """Take a worker's links away before its namespace, which the kernel takes apart later.

        Raises:
            DeploymentError: the namespace is another deployment's, or a command failed.
        """
        netns = self.namespace(worker)
        owner = self.owner(netns)
        if owner and not owner.startswith(self.alias("")):
            hint = "take that deployment down, or give this one another --name"
            raise DeploymentError(
                "a namespace belongs to another deployment", where=netns, why=f"it says {owner!r}", hint=hint
            )
        iproute.run(["ip", "link", "del", "dev", self.port(worker)], check=False)
        iproute.run(["ip", "-n", self.fabric, "link", "del", "dev", self.port(worker)], check=False)
        if netns in iproute.namespaces():
            iproute.run(["ip", "netns", "del", netns])

    def remove_all(self) -> None:
        """Remove everything of this deployment.

        Raises:
            DeploymentError: a command failed.
        """
        for link in self.host_links():
            iproute.run(["ip", "link", "del", "dev", link])
        for netns in self.namespaces():
            iproute.run(["ip", "netns", "del", netns])
        self.number()
        iproute.run(["ip", "link", "del", "dev", self.bridge], check=False)


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def subnet_of(pattern: str, number: int) -> ipaddress.IPv4Network:
    """Return the subnet of that number."""
    return ipaddress.IPv4Network(pattern.format(n=number))


def kv_beside(address: str) -> str:
    """Return a worker's address on its KV link from that on its control link: same subnet number, same host number.

    Raises:
        UsageError: it is no address of a control link.
    """
    ip = ipaddress.IPv4Address(address)
    number = ip.packed[2]
    if ip not in subnet_of(CONTROL_SUBNET, number):
        raise UsageError(
            f"{address} is no address of a deployment's control link",
            why="those are in 10.74.0.0/16",
            hint="take one that `pdops status` shows",
        )
    return str(subnet_of(KV_SUBNET, number)[ip.packed[3]])


def _free_number() -> int:
    """The first control subnet no route of this host leads to.

    A route to all of 10.0.0.0/8 is taken for a way out and not for a network we would hide.
    """
    routes = [ipaddress.ip_network(d) for d in iproute.destinations()]
    routes = [r for r in routes if r.version == 4 and r.prefixlen > 8]
    for number in range(256):
        wanted = subnet_of(CONTROL_SUBNET, number)
        if not any(wanted.overlaps(r) for r in routes if isinstance(r, ipaddress.IPv4Network)):
            return number
    raise DeploymentError("no free subnet for a deployment's control network", where="10.74.0.0/16", hint="ip route")
