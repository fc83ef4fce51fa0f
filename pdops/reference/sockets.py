"""Where our processes listen, read from /proc."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

_LISTEN = "0A"
_TABLES = ("tcp", "tcp6")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def listeners(pids: Iterable[int]) -> list[tuple[Address, int]]:
    """Return address and port of every TCP socket the processes listen on, each in its own network namespace.

    Processes that end meanwhile are left out.
    """
    found: dict[tuple[Address, int], None] = {}
    for pid in pids:
        wanted: set[str] = set()
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    kind, _, inode = str(entry.readlink()).partition(":")
                    if kind == "socket":
                        wanted.add(inode.strip("[]"))
            for name in _TABLES:
                if (table := Path(f"/proc/{pid}/net/{name}")).exists():
                    found |= dict.fromkeys(_read(table, wanted))
    return list(found)


def _read(table: Path, wanted: set[str]) -> list[tuple[Address, int]]:
    found = []
    for line in table.read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTEN and fields[9] in wanted:
            address, _, port = fields[1].partition(":")
            found.append((_address(address), int(port, 16)))
    return found


def _address(text: str) -> Address:
    # The kernel prints each 32-bit word in the machine's byte order.
    words = [bytes.fromhex(text[i : i + 8]) for i in range(0, len(text), 8)]
    packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    return ipaddress.ip_address(socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed))
