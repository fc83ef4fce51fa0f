"""An RDMA port that KV is to travel over is down, has no routable GID, or another MTU than its peers."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.devices import RdmaPort, rdma_ports
from pdops.diagnose.fabric import over_rdma, used_ports
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.hosts import FIX_HOST, NO_PAIR, env
from pdops.diagnose.preflight import NO_ALERT, Seen, agrees, engines, must, not_applicable, unread
from pdops.model.cluster import Worker

META = CheckMeta(
    id="host/rdma-port",
    title="RDMA ports: active, with a routable GID, and of one MTU",
    causes=("rdma-link-config",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

CAUSE = "rdma-link-config"
FACT = "host.rdma"
_INDEXES = ("UCX_IB_GID_INDEX", "MC_GID_INDEX")


def check(ctx: Context) -> Iterator[Finding]:
    """Judge the ports of every worker whose KV travels over RDMA, then compare their MTU."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable(CAUSE, NO_PAIR)
        return
    ours, unknown, others = over_rdma(ctx, workers)
    for name, path in unknown.items():
        yield unread(CAUSE, name, path.missing, path.why, FIX_HOST)
    if not ours and not unknown:
        yield not_applicable(CAUSE, f"KV does not travel over RDMA ({'; '.join(others)})")
    lost = [w.id for w in ours if rdma_ports(ctx, w.id) is None]
    if lost:
        yield unread(CAUSE, lost, FACT, "the RDMA ports of its host were not read", FIX_HOST)
    sound: dict[str, list[RdmaPort]] = {}
    for worker in ours:
        if worker.id not in lost:
            bad = list(_judge(ctx, worker))
            yield from bad
            if not bad:
                sound[worker.id] = [p for p in used_ports(ctx, worker.id) if p.active]
    yield from _mtu(sound)


def _judge(ctx: Context, worker: Worker) -> Iterator[Finding]:
    ports = used_ports(ctx, worker.id)
    active = [p for p in ports if p.active]
    named = bool(env(ctx, worker.id, "UCX_NET_DEVICES"))
    down = [p for p in ports if not p.active] if named or not active else []
    if not ports or down:
        shown = ", ".join(f"{p.name} {p.state or 'state unknown'}" for p in down) or "no RDMA port"
        yield must(
            CAUSE,
            [Seen(worker.id, FACT, shown)],
            "ACTIVE",
            "look at cable, switch port and `ibstat`; name only active ports in UCX_NET_DEVICES",
        )
    index = next((v for name in _INDEXES if (v := env(ctx, worker.id, name) or "").isdecimal()), None)
    for port in active:
        if port.link_layer.casefold() != "ethernet":
            continue
        if not port.gids:
            yield unread(CAUSE, worker.id, FACT, f"the GIDs of {port.name} were not read", FIX_HOST)
            continue
        chosen = [g for g in port.gids if index is None or g.index == int(index)]
        if not any(g.routable for g in chosen):
            shown = "none" if not chosen else f"{chosen[0].gid} {chosen[0].kind}".rstrip()
            yield must(
                CAUSE,
                [
                    Seen(
                        worker.id, f"{FACT} GID of {port.name}", shown if index is None else f"{shown} at index {index}"
                    )
                ],
                "a routable RoCE v2 GID, which is no link-local one (fe80)",
                "give the interface an IP address, and set UCX_IB_GID_INDEX (MC_GID_INDEX for Mooncake) to the index of "
                "its RoCE v2 GID as `show_gids` lists it",
            )


def _mtu(sound: dict[str, list[RdmaPort]]) -> Iterator[Finding]:
    told = {name: sorted({p.mtu for p in ports if p.mtu}) for name, ports in sound.items()}
    lost = [name for name, mtus in told.items() if not mtus]
    known = {name: "/".join(mtus) for name, mtus in told.items() if mtus}
    if lost:
        yield unread(CAUSE, lost, f"{FACT} mtu", "the MTU of its RDMA ports was not read", FIX_HOST)
    if len(set(known.values())) > 1:
        yield must(
            CAUSE,
            [Seen(name, f"{FACT} mtu", mtu) for name, mtu in known.items()],
            "one MTU on all ports that meet",
            "set the MTU alike on hosts and switches; MC_MTU sets it for Mooncake",
        )
    elif known:
        ports = ", ".join(f"{name} {p.name}" for name in known for p in sound[name])
        yield agrees(CAUSE, f"active, MTU {next(iter(known.values()))}: {ports}")
