"""Which peers each worker has to reach, where, and what trying came to."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from pdops.model.cluster import Cluster, Role, Worker
from pdops.sources.facts.collected import Collected
from pdops.sources.facts.reach import Place, connect_all

FROM_HERE = "(from here)"
"""Ends the answer of a connection that was made from pdops' own host, not from the worker's."""
_HOST, _PORT = "VLLM_NIXL_SIDE_CHANNEL_HOST", "VLLM_NIXL_SIDE_CHANNEL_PORT"


def http_place(worker: Worker) -> Place | None:
    """Return where a worker serves, or None without an address."""
    parts = urlsplit(worker.url or "")
    if not parts.hostname:
        return None
    return Place(parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))


def side_channel(facts: Mapping[str, str]) -> Place | None:
    """Return what a NIXL engine advertises to its peers, or None where that was not read or is no address yet."""
    host, port = facts.get(_HOST, ""), facts.get(_PORT, "")
    return Place(host, int(port)) if host and "$" not in host and port.isdigit() and int(port) < 65536 else None


def wanted(cluster: Cluster) -> tuple[tuple[str, str, str], ...]:
    """Return (who, peer, what) of every connection a running cluster makes: `side_channel` or `http`."""
    pairs = [(pair.dst, pair.src, "side_channel") for pair in cluster.pairs()]
    serving = cluster.of_role(Role.PREFILL, Role.DECODE)
    return (*pairs, *((router.id, w.id, "http") for router in cluster.of_role(Role.ROUTER) for w in serving))


async def collect_reach(cluster: Cluster, collected: Collected, beside: Collection[str]) -> Collected:
    """Try every connection of `wanted` from here.

    Args:
        cluster: who is there.
        collected: what is known of the workers, for the addresses they advertise.
        beside: workers whose network is this process' own, so that trying from here is trying from there.
    """
    places: dict[tuple[str, str], Place] = {}
    for worker in cluster.workers:
        serving, side = http_place(worker), side_channel(collected.facts.get(worker.id, {}))
        if serving is not None:
            places[worker.id, "http"] = serving
        # A peer's loopback is not ours unless it lives here.
        if side is not None and (worker.id in beside or not _loopback(side.host)):
            places[worker.id, "side_channel"] = side
    needed = [want for want in wanted(cluster) if (want[1], want[2]) in places]
    answers = await connect_all(places[peer, what] for _, peer, what in needed)
    out = Collected()
    for who, peer, what in wanted(cluster):
        key, place = f"reach.{peer}.{what}", places.get((peer, what))
        if place is None:
            out.miss(who, key, f"the address of {peer} is not known here")
        elif place not in answers:
            out.miss(who, key, "there are too many connections to try")
        else:
            out.put(who, {key: answers[place] if who in beside else f"{answers[place]} {FROM_HERE}"})
    return out


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
