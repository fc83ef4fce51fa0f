"""What breaks one worker's KV link: command lines for `tc` and `nft`, as data.

Each direction is broken where its packets arrive: what the worker sends at its port of the fabric, what it gets at its own
device. So a sender sees loss as loss and not as an error of its own.
"""

from __future__ import annotations

import math

from pdops.errors import UsageError

UNLIMITED_SEGMENTS = 65535
"""The kernel's own limit of segments in one packet handed to a device."""
_BURST_BYTES = 16 << 10
_BURST_S = 0.004
"""A bucket must hold what passes between two ticks of a slow kernel clock (250 per second)."""

Command = tuple[str, ...]


def slow(netns: str, device: str, bits_per_s: float, latency_ms: float) -> list[Command]:
    """Return what limits the rate at which a device sends.

    Args:
        netns: a namespace.
        device: a device in it.
        bits_per_s: from 8,000 to 10^12.
        latency_ms: the longest a packet waits in the queue; what would wait longer is dropped.

    Raises:
        UsageError: a number is outside of what the queue can do.
    """
    if not 8e3 <= bits_per_s <= 1e12:
        raise UsageError(f"{bits_per_s!r} bit/s is no rate of a link", hint="from 8000 to 1e12, for example 2e7")
    if not 1 <= latency_ms <= 60_000:
        raise UsageError(f"{latency_ms!r} ms is no queue time", hint="from 1 to 60000, for example 400")
    burst = max(_BURST_BYTES, math.ceil(bits_per_s / 8 * _BURST_S))
    queue = ("qdisc", "replace", "dev", device, "root", "tbf")
    limits = ("rate", f"{round(bits_per_s)}bit", "burst", str(burst), "latency", f"{round(latency_ms)}ms")
    return [("tc", "-n", netns, *queue, *limits)]


def unslow(netns: str, device: str) -> list[Command]:
    """Return what lifts the limit; fails harmlessly where there is none."""
    return [("tc", "-n", netns, "qdisc", "del", "dev", device, "root")]


def segments(netns: str, device: str, most: int) -> list[Command]:
    """Return what sets the most segments in one packet given to a device; 1 makes loss count wire packets."""
    return [("ip", "-n", netns, "link", "set", "dev", device, "gso_max_segs", str(most))]


def drop(netns: str, device: str, percent: float) -> list[Command]:
    """Return what drops a share of what arrives at a device, all protocols, and counts it.

    Args:
        netns: a namespace.
        device: a device in it.
        percent: above 0 to 100, in steps of 0.01; 100 is a cut.

    Raises:
        UsageError: a share outside of that.
    """
    share = round(percent * 100) if math.isfinite(percent) else 0
    if not 0 < share <= 10_000:
        raise UsageError(f"{percent!r} is no share of packets", hint="above 0 and up to 100 percent")
    some = "" if share == 10_000 else f"numgen random mod 10000 < {share} "
    table = table_of(device)
    rules = f"""add table netdev {table}
add chain netdev {table} arriving {{ type filter hook ingress device "{device}" priority 0; }}
add rule netdev {table} arriving {some}counter drop
"""
    return [(*_in(netns), "nft", rules)]


def undrop(netns: str, device: str) -> list[Command]:
    """Return what ends the dropping; fails harmlessly where there is none."""
    return [(*_in(netns), "nft", "delete", "table", "netdev", table_of(device))]


def dropped(netns: str, device: str) -> list[Command]:
    """Return what tells how much was dropped, as JSON; fails where nothing is."""
    return [(*_in(netns), "nft", "-j", "list", "table", "netdev", table_of(device))]


def table_of(device: str) -> str:
    """Return the name of a device's nftables table, so that nobody else's is touched."""
    return f"pdops_{device}"


def _in(netns: str) -> Command:
    return ("ip", "netns", "exec", netns)
