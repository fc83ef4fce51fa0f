"""GPU memory cannot be registered with the RDMA adapter."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.devices import gpus
from pdops.diagnose.fabric import over_rdma
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.hosts import FIX_ENVIRONMENT, FIX_HOST, NO_PAIR, env, listed
from pdops.diagnose.preflight import NO_ALERT, Seen, agrees, engines, fact, must, not_applicable, unread, warn

META = CheckMeta(
    id="host/peermem",
    title="GPU memory can be registered with the RDMA adapter",
    causes=("mem-registration",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

CAUSE = "mem-registration"
MODULES = ("nvidia_peermem", "nv_peer_mem")
DMABUF_KERNEL = (5, 12)
"""Linux version from which RDMA adapters take DMA-BUF memory (kernel release notes; NVIDIA's GPUDirect RDMA guide)."""
_ALLOC = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_KERNEL = re.compile(r"(\d+)\.(\d+)")


def check(ctx: Context) -> Iterator[Finding]:
    """Judge kernel modules and PyTorch's allocator of every worker that has GPUs and moves KV over RDMA."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable(CAUSE, NO_PAIR)
        return
    ours, unknown, others = over_rdma(ctx, workers)
    judged = False
    for name, path in unknown.items():
        if gpus(ctx, name) != ():
            judged = True
            yield unread(CAUSE, name, path.missing, path.why, FIX_HOST)
    for worker in ours:
        found = gpus(ctx, worker.id)
        if found == ():
            others.append(f"{worker.id}: KV lies in host memory")
            continue
        judged = True
        if found is None:
            yield unread(CAUSE, worker.id, "host.gpus", "it is not known whether KV lies in GPU memory", FIX_HOST)
            continue
        yield from _module(ctx, worker.id)
        yield from _allocator(ctx, worker.id)
    if not judged:
        yield not_applicable(CAUSE, f"no GPU memory goes over RDMA ({'; '.join(others)})")


def _module(ctx: Context, name: str) -> Iterator[Finding]:
    modules = fact(ctx, name, "host.modules")
    if modules is None:
        yield unread(CAUSE, name, "host.modules", "the loaded kernel modules were not read", FIX_HOST)
        return
    loaded = next((m for m in MODULES if m in listed(modules)), None)
    if loaded:
        yield agrees(CAUSE, f"{loaded} is loaded on {name}")
        return
    kernel = fact(ctx, name, "host.kernel")
    number = _KERNEL.match(kernel or "")
    seen = [Seen(name, "host.modules", "no nvidia_peermem"), Seen(name, "host.kernel", kernel)]
    fix = "run `modprobe nvidia_peermem` on its node and have it loaded at boot"
    if number is None:
        yield unread(CAUSE, name, "host.kernel", "nvidia_peermem is not loaded, and the kernel was not read", FIX_HOST)
    elif (int(number[1]), int(number[2])) < DMABUF_KERNEL:
        yield must(CAUSE, seen, "nvidia_peermem, as this kernel is too old for DMA-BUF", fix)
    else:
        yield warn(
            CAUSE,
            seen,
            "nvidia_peermem, or DMA-BUF by the open NVIDIA kernel modules, which cannot be told from here",
            fix,
            "or make sure that the open kernel modules are in use (`modinfo -F license nvidia` says Dual MIT/GPL)",
        )


def _allocator(ctx: Context, name: str) -> Iterator[Finding]:
    told = {variable: env(ctx, name, variable) for variable in _ALLOC}
    if None in told.values():
        yield unread(CAUSE, name, _ALLOC[0], "the environment was not read", FIX_ENVIRONMENT)
        return
    on = [v for v, text in told.items() if "expandable_segments:true" in (text or "").casefold().replace(" ", "")]
    if on:
        yield must(
            CAUSE,
            [Seen(name, variable, told[variable]) for variable in on],
            "no expandable_segments, whose memory adapters and CUDA IPC cannot register",
            f"take expandable_segments out of {on[0]}",
        )
    else:
        yield agrees(CAUSE, f"expandable_segments is not set on {name}")
