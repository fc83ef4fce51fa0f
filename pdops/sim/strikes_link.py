"""Faults of NICs, links and zones."""

from __future__ import annotations

import zlib

from pdops.model.cluster import Role
from pdops.sim.decode import DecodeWorker
from pdops.sim.faults import Blow, Strike, Undo
from pdops.sim.nic import Link, Nic


def _factor(blow: Blow, sides: list[Nic | Link], factor: float) -> Undo:
    for side in sides:
        side.rate.set(blow, factor)
    blow.sim.fabric.changed()

    def undo() -> None:
        for side in sides:
            side.rate.clear(blow)
        blow.sim.fabric.changed()

    return undo


def _link_rate(blow: Blow) -> Undo:
    """With `pairs` a share of all pairs is hit instead, drawn by name, as the flows that one of several uplinks carries."""
    share = blow.number("pairs", 0.0)
    sides = _scattered(blow, share) if share else blow.sides()
    return _factor(blow, sides, max(1e-6, blow.number("factor", 0.1)))


def _scattered(blow: Blow, share: float) -> list[Nic | Link]:
    world, seed = blow.sim.world, blow.sim.spec.seed
    pairs = sorted(
        ((p, d) for p in world.prefills for d in world.decodes),
        key=lambda pair: zlib.crc32(f"{seed}/{pair[0]}>{pair[1]}".encode()),
    )
    return [blow.sim.fabric.link(*pair) for pair in pairs[: max(1, round(len(pairs) * share))]]


def _link_latency(blow: Blow) -> Undo:
    sides = blow.sides()
    for side in sides:
        side.delay[blow] = blow.number("add_s", 0.05)

    def undo() -> None:
        for side in sides:
            side.delay.pop(blow, None)

    return undo


def _link_loss(blow: Blow) -> Undo:
    sides, fabric = blow.sides(), blow.sim.fabric
    fabric.lossy = True
    for side in sides:
        side.lost[blow] = min(0.99, blow.number("ratio", 0.05))
    fabric.changed()

    def undo() -> None:
        for side in sides:
            side.lost.pop(blow, None)
        fabric.changed()

    return undo


def _link_cut(blow: Blow) -> Undo:
    sides, fabric = blow.first_pair(), blow.sim.fabric
    for side in sides:
        fabric.halt(side, blow, halted=True)

    def undo() -> None:
        for side in sides:
            fabric.halt(side, blow, halted=False)

    return undo


def _nic_background(blow: Blow) -> Undo:
    nics, fabric = [s for s in blow.sides() if isinstance(s, Nic)], blow.sim.fabric

    def put(share: float) -> None:
        fabric.refresh()
        for nic in nics:
            nic.background = share
        fabric.changed()

    put(min(0.999, blow.number("share", 0.9)))
    return lambda: put(0.0)


def _handshake_fail(blow: Blow) -> Undo:
    """The pair must meet again, and cannot."""
    links = blow.links()
    for link in links:
        link.refuses.add(blow)
        link.met = False

    def undo() -> None:
        for link in links:
            link.refuses.discard(blow)

    return undo


def _transport_tcp(blow: Blow) -> Undo:
    """KV goes through the Ethernet device: slower, and seen on another counter."""
    nics = [blow.sim.fabric.nics[w.name] for w in blow.workers()]
    slow = _factor(blow, list(nics), max(1e-6, blow.number("factor", 0.1)))
    blow.sim.refresh()
    for nic in nics:
        nic.tcp += 1
        nic.descriptors.set(blow, blow.number("descriptors", 1.0))

    def undo() -> None:
        blow.sim.refresh()
        for nic in nics:
            nic.tcp -= 1
            nic.descriptors.clear(blow)
        slow()

    return undo


def _descriptor_jump(blow: Blow) -> Undo:
    nics = [blow.sim.fabric.nics[w.name] for w in blow.workers()]
    for nic in nics:
        nic.descriptors.set(blow, blow.number("factor", 20.0))

    def undo() -> None:
        for nic in nics:
            nic.descriptors.clear(blow)

    return undo


def far_zones(blow: Blow) -> Undo:
    """Make what lies between zones slower (`rate_factor`) and longer (`rtt_s` more)."""
    fabric = blow.sim.fabric
    fabric.zone_rate.set(blow, max(1e-6, blow.number("rate_factor", 1.0)))
    fabric.zone_delay[blow] = blow.number("rtt_s", 0.0)
    fabric.changed()

    def undo() -> None:
        fabric.zone_rate.clear(blow)
        fabric.zone_delay.pop(blow, None)
        fabric.changed()

    return undo


def _zone_placement(blow: Blow) -> Undo:
    """Prefill and decode of different zones serve together."""
    near, policy = far_zones(blow), blow.sim.router.policy
    policy.far = True

    def undo() -> None:
        policy.far = False
        near()

    return undo


def _idle_drop(blow: Blow) -> Undo:
    """Something on the way forgets connections that were idle for `idle_s`; their ends notice `stall_s` after the next use."""
    drops = blow.sim.fabric.drops
    drops[blow] = max(0.0, blow.number("idle_s", 5.0)), max(0.0, blow.number("stall_s", 5.0))

    def undo() -> None:
        drops.pop(blow, None)

    return undo


def _pull_limit(blow: Blow) -> Undo:
    """Decode cannot pull more than `tokens` of a prompt at once, as when what it copies through is too small."""
    workers = [w for w in blow.workers(Role.DECODE) if isinstance(w, DecodeWorker)]
    for worker in workers:
        worker.puller.limits[blow] = blow.number("tokens", 4096.0)

    def undo() -> None:
        for worker in workers:
            worker.puller.limits.pop(blow, None)

    return undo


STRIKES: dict[str, Strike] = {
    "link-rate": _link_rate,
    "link-latency": _link_latency,
    "link-loss": _link_loss,
    "link-cut": _link_cut,
    "nic-background": _nic_background,
    "handshake-fail": _handshake_fail,
    "transport-tcp": _transport_tcp,
    "descriptor-jump": _descriptor_jump,
    "zone-placement": _zone_placement,
    "idle-drop": _idle_drop,
    "pull-limit": _pull_limit,
}
