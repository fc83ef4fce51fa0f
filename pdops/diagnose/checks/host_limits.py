"""Shared memory, open files or outgoing ports run out before the cluster is busy."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.devices import gpus
from pdops.diagnose.fabric import uses
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.hosts import FIX_HOST, NO_PAIR, env, ranks, split
from pdops.diagnose.preflight import NO_ALERT, Seen, agrees, amount, engines, fact, must, not_applicable, unread, warn
from pdops.model.cluster import Worker

META = CheckMeta(
    id="host/limits",
    title="Limits of the host: shared memory, open files, outgoing ports",
    causes=("engine-crash", "transport-error"),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

CRASH = "engine-crash"
ERROR = "transport-error"
SHM = "host.shm_total_bytes"
FILES = "host.nofile"
PORTS = "host.ephemeral_ports"
CONTAINER_SHM = 64 * 2**20
"""Bytes of /dev/shm a container gets unless more is asked for (Docker, containerd); ranks that share batches and NCCL
need more, and the engine dies with a bus error when it is full."""
SOUND_SHM = float(2**30)
"""A working figure for one engine with several ranks; vendors' examples give 4 GiB."""
SOUND_FILES = 65_535.0
"""Soft limit that vLLM 0.32.0 asks for itself (`system_utils.set_ulimit`)."""
SOUND_PORTS = 28_232
"""Ports in Linux' default range, 32768-60999; Mooncake's TCP transport takes one for each transfer unless it pools."""


def check(ctx: Context) -> Iterator[Finding]:
    """Judge the three limits of every engine's host."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable(CRASH, NO_PAIR)
        return
    yield from _shared_memory(ctx, workers)
    yield from _files(ctx, workers)
    yield from _ports(ctx, workers)


def _shared_memory(ctx: Context, workers: tuple[Worker, ...]) -> Iterator[Finding]:
    told, lost = split([w.id for w in workers], lambda name: amount(ctx, name, SHM))
    if lost:
        yield unread(CRASH, lost, SHM, "the size of /dev/shm was not read", FIX_HOST)
    fix = "give the container more: --shm-size=4g, --ipc=host, or an emptyDir of medium Memory at /dev/shm"
    for say, wanted, names in (
        (must, f"more than {CONTAINER_SHM >> 20} MiB", [n for n, v in told.items() if v <= CONTAINER_SHM]),
        (warn, "at least 1 GiB", [n for n, v in told.items() if CONTAINER_SHM < v < SOUND_SHM]),
    ):
        ranked = [n for n in names if _several(ctx, n)]
        if ranked:
            yield say(CRASH, [Seen(n, SHM, told[n], "bytes") for n in ranked], wanted, fix)
    free = {n: amount(ctx, n, "host.shm_free_bytes") for n in told}
    full = [n for n, left in free.items() if left is not None and left < CONTAINER_SHM < told[n]]
    if full:
        seen = [Seen(n, "host.shm_free_bytes", free[n], "bytes") for n in full]
        yield must(
            CRASH, seen, f"at least {CONTAINER_SHM >> 20} MiB free", "remove what dead processes left in /dev/shm"
        )
    elif told and all(v >= SOUND_SHM or not _several(ctx, n) for n, v in told.items()):
        yield agrees(CRASH, f"shared memory: {min(told.values()) / 2**30:.2g} GiB or more")


def _several(ctx: Context, worker: str) -> bool:
    """Whether an engine has ranks that talk through shared memory."""
    return ranks(ctx, worker, "tensor_parallel_size", "pipeline_parallel_size") > 1 or len(gpus(ctx, worker) or ()) > 1


def _files(ctx: Context, workers: tuple[Worker, ...]) -> Iterator[Finding]:
    told, lost = split([w.id for w in workers], lambda name: amount(ctx, name, FILES))
    if lost:
        yield unread(CRASH, lost, FILES, "the limit of open files was not read", FIX_HOST)
    few = [n for n, v in told.items() if v < SOUND_FILES]
    if few:
        yield warn(
            CRASH,
            [Seen(n, FILES, told[n]) for n in few],
            f"at least {SOUND_FILES:.0f}",
            "raise the limit of open files for the service (LimitNOFILE=65535, --ulimit nofile=65535)",
        )
    elif told:
        yield agrees(CRASH, f"open files: {min(told.values()):.0f} or more")


def _ports(ctx: Context, workers: tuple[Worker, ...]) -> Iterator[Finding]:
    told, lost = split([w.id for w in workers], lambda name: _span(fact(ctx, name, PORTS)))
    if lost:
        yield unread(ERROR, lost, PORTS, "the range of outgoing ports was not read", FIX_HOST)
    few = [n for n, v in told.items() if v < SOUND_PORTS]
    if few:
        yield warn(
            ERROR,
            [Seen(n, PORTS, fact(ctx, n, PORTS)) for n in few],
            f"at least {SOUND_PORTS} ports, Linux' default",
            "widen net.ipv4.ip_local_port_range with sysctl",
        )
    elif told:
        yield agrees(ERROR, f"outgoing ports: {min(told.values())} or more")
    for worker in workers:
        if not uses(ctx, worker.id, "mooncake") or fact(ctx, worker.id, "MC_PROTOCOL", "mooncake_protocol") != "tcp":
            continue
        pool = env(ctx, worker.id, "MC_TCP_ENABLE_CONNECTION_POOL")
        if pool is None:
            why = "the environment was not read"
            yield unread(ERROR, worker.id, "MC_TCP_ENABLE_CONNECTION_POOL", why)
        elif pool.casefold() not in ("1", "true", "on"):
            yield warn(
                ERROR,
                [Seen(worker.id, "MC_TCP_ENABLE_CONNECTION_POOL", pool or "not set")],
                "1, as each transfer over TCP takes an outgoing port otherwise",
                "set MC_TCP_ENABLE_CONNECTION_POOL=1",
            )


def _span(text: str | None) -> int | None:
    found = re.fullmatch(r"(\d+)\s*[-\s]\s*(\d+)", text.strip()) if text else None
    return int(found[2]) - int(found[1]) + 1 if found else None
