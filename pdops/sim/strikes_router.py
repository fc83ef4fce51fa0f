"""Faults of the router: its policy, what it knows, whom it leaves out."""

from __future__ import annotations

from pdops.model.cluster import Role
from pdops.sim.faults import Blow, Strike, Undo
from pdops.sim.strikes_link import far_zones


def _router_policy(blow: Blow) -> Undo:
    policy = blow.sim.router.policy
    before, policy.name = policy.name, blow.text("name", "round-robin")

    def undo() -> None:
        policy.name = before

    return undo


def _router_zone_blind(blow: Blow) -> Undo:
    policy, near = blow.sim.router.policy, far_zones(blow)
    before = policy.name
    if before == "zone-aware":
        policy.name = "least-loaded"

    def undo() -> None:
        policy.name = before
        near()

    return undo


def _router_stale(blow: Blow) -> Undo:
    """The router decides on loads that are `age_s` old at most."""
    router, age_s = blow.sim.router, max(0.1, blow.number("age_s", 30.0))
    router.policy.stale = True

    def look() -> None:
        if router.policy.stale:
            router.look()
            blow.later(age_s, look)

    look()

    def undo() -> None:
        router.policy.stale = False

    return undo


def _router_no_backpressure(blow: Blow) -> Undo:
    router = blow.sim.router
    router.backpressure = False
    router.pump()

    def undo() -> None:
        router.backpressure = True

    return undo


def _health_eject(blow: Blow) -> Undo:
    """The router takes healthy workers for ill; with `period_s` off and on."""
    names = [w.name for w in blow.victims(Role.DECODE)]

    def put(ejected: bool) -> None:
        for name in names:
            blow.sim.router.eject(name, ejected=ejected)

    return blow.swing(put, blow.number("period_s", 0.0))


def _decode_only(blow: Blow) -> Undo:
    """The router loses the KV address (`mode` drop-params) or leaves prefill out (no-prefill) for a `share`."""
    router = blow.sim.router
    router.local_share, router.local_mode = blow.number("share", 1.0), blow.text("mode", "drop-params")

    def undo() -> None:
        router.local_share = 0.0

    return undo


def _hop_delay(blow: Blow) -> Undo:
    """A `ratio` of the requests that the router sends to an engine sets out `wait_s` late, as when a name is looked up twice."""
    hops = blow.sim.router.hops
    hops[blow] = min(1.0, max(0.0, blow.number("ratio", 0.1))), max(0.0, blow.number("wait_s", 5.0))

    def undo() -> None:
        hops.pop(blow, None)

    return undo


STRIKES: dict[str, Strike] = {
    "router-policy": _router_policy,
    "router-zone-blind": _router_zone_blind,
    "router-stale": _router_stale,
    "router-no-backpressure": _router_no_backpressure,
    "health-eject": _health_eject,
    "decode-only": _decode_only,
    "hop-delay": _hop_delay,
}
