"""UCX is told to use transports or devices that cannot carry KV where it has to go, or only slowly."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.devices import gpus, net_devices, rdma_ports
from pdops.diagnose.fabric import allows, has_rdma, uses_ucx
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.hosts import FIX_ENVIRONMENT, FIX_HOST, NO_PAIR, alone, env, listed, same_host, split
from pdops.diagnose.preflight import NO_ALERT, Seen, agrees, engines, must, not_applicable, unread
from pdops.model.cluster import Pair, Worker

META = CheckMeta(
    id="host/ucx-transport",
    title="UCX: transports fit where the peer is, and named devices are there and active",
    causes=("transport-config", "transport-fallback-slow"),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

WRONG = "transport-config"
SLOW = "transport-fallback-slow"
_TLS = "UCX_TLS"
_DEVICES = "UCX_NET_DEVICES"
_UP = ("up", "unknown")
"""What Linux writes as `operstate` of a device that carries traffic; loopback and some virtual ones say `unknown`."""


def check(ctx: Context) -> Iterator[Finding]:
    """Judge UCX_NET_DEVICES of each worker and UCX_TLS of each pair."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable(WRONG, NO_PAIR)
        return
    known, lost = split([w.id for w in workers], lambda name: uses_ucx(ctx, name))
    if lost:
        yield unread(WRONG, lost, "kv_connector", "it is not known whether KV travels by UCX")
    ours = [w for w in workers if known.get(w.id)]
    if not ours:
        if not lost:
            yield not_applicable(WRONG, "no worker moves KV by NIXL over UCX")
        return
    names = [w.id for w in ours]
    for variable in (_TLS, _DEVICES):
        unknown = [n for n in names if env(ctx, n, variable) is None]
        if unknown:
            yield unread(WRONG, unknown, variable, "the environment was not read", FIX_ENVIRONMENT)
    for worker in ours:
        yield from _devices(ctx, worker)
    yield from _transports(ctx, [p for p in ctx.cluster.pairs() if p.src in names and p.dst in names])


def _devices(ctx: Context, worker: Worker) -> Iterator[Finding]:
    given = env(ctx, worker.id, _DEVICES)
    if not given or "all" in listed(given):
        return
    bad: list[str] = []
    vague = False
    ports, nets = rdma_ports(ctx, worker.id), net_devices(ctx, worker.id)
    here = alone(ctx, worker)
    for name in listed(given):
        port = next((p for p in ports or () if name in (p.name.casefold(), p.name.split(":")[0].casefold())), None)
        net = next((d for n, d in (nets or {}).items() if n.casefold() == name), None)
        if name == "lo":
            if here is None:
                yield unread(
                    WRONG, worker.id, "host.name", "KV goes by loopback; are all its peers on its host?", FIX_HOST
                )
            elif not here:
                bad.append("lo, while peers are on other hosts")
        elif port is not None:
            bad += [] if port.active else [f"{name} is {port.state or 'in no known state'}"]
        elif net is not None:
            state = str(net.get("state", "")).casefold()
            bad += [] if state in _UP else [f"{name} is {state or 'in no known state'}"]
        elif ports is None or nets is None:
            vague = True
        else:
            bad.append(f"{name} is not a device of this host")
    if vague:
        yield unread(WRONG, worker.id, "host.net_devices", f"the devices of its host were not read ({given})", FIX_HOST)
    if bad:
        yield must(
            WRONG,
            [Seen(worker.id, _DEVICES, f"{given}: {'; '.join(bad)}")],
            "devices of this host that are active and lead to every peer",
            f"name an active device in {_DEVICES}, as DEVICE:PORT for RDMA, or bring the named one up",
        )
    elif not vague:
        yield agrees(WRONG, f"{_DEVICES} {given} on {worker.id} is there and active")


def _transports(ctx: Context, pairs: list[Pair]) -> Iterator[Finding]:
    good: dict[str, None] = {}
    for pair in pairs:
        tls = {end: env(ctx, end, _TLS) for end in (pair.src, pair.dst)}
        told = {end: text for end, text in tls.items() if text is not None}
        if len(told) < 2:
            continue
        shown = [Seen(end, _TLS, text or "not set") for end, text in told.items()]
        here = same_host(ctx, pair.src, pair.dst)
        if here is None:
            yield unread(WRONG, str(pair), "host.name", "it is not known whether both ends share a host", FIX_HOST)
            continue
        found = list(_local(ctx, told, shown) if here else _remote(ctx, told, shown))
        yield from found
        if not found:
            good.update(dict.fromkeys(f"{end} {text or 'any'}" for end, text in told.items()))
    if good:
        yield agrees(WRONG, f"{_TLS} fits where the peers are: {', '.join(good)}")


def _remote(ctx: Context, told: dict[str, str], shown: list[Seen]) -> Iterator[Finding]:
    if any(has_rdma(tls) is False and not allows(tls, "tcp") for tls in told.values()):
        yield must(WRONG, shown, "a transport that leaves the host", "add RDMA transports (rc, dc) or tcp to UCX_TLS")
        return
    barred = [end for end, tls in told.items() if has_rdma(tls) is False]
    if not barred:
        return
    ports = {end: rdma_ports(ctx, end) for end in told}
    unknown = [end for end, found in ports.items() if found is None]
    if unknown and all(found is None or any(p.active for p in found) for found in ports.values()):
        why = "UCX_TLS leaves RDMA out, and it is not known whether the host has it"
        yield unread(SLOW, unknown, "host.rdma", why, FIX_HOST)
    elif not unknown and all(any(p.active for p in found or ()) for found in ports.values()):
        yield must(
            SLOW,
            shown,
            "an RDMA transport, since both hosts have an active RDMA port",
            f"on {', '.join(barred)} unset UCX_TLS or add rc (or dc) to it",
        )


def _local(ctx: Context, told: dict[str, str], shown: list[Seen]) -> Iterator[Finding]:
    have = {end: gpus(ctx, end) for end in told}
    explicit = [end for end, tls in told.items() if tls]
    if not explicit:
        return
    unknown = [end for end, found in have.items() if found is None]
    if unknown:
        yield unread(SLOW, unknown, "host.gpus", "it is not known whether KV lies in GPU memory", FIX_HOST)
        return
    if not all(have.values()):
        return
    lacking = [end for end, tls in told.items() if not allows(tls, "cuda_ipc", "cuda", "rocm_ipc", "rocm")]
    if lacking:
        yield must(
            SLOW,
            shown,
            "cuda_ipc, since both ends have GPUs on one host",
            f"on {', '.join(lacking)} unset UCX_TLS or add cuda_ipc and cuda_copy to it",
        )
