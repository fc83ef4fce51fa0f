"""The GPU has too little memory left beside the KV pool."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.devices import Gpu, gpus
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.hosts import FIX_HOST, NO_PAIR, same_host, split, started
from pdops.diagnose.preflight import (
    NO_ALERT,
    Seen,
    agrees,
    amount,
    engines,
    must,
    not_applicable,
    unread,
    warn,
    was_configured,
)

META = CheckMeta(
    id="host/gpu-headroom",
    title="GPU memory: room for the pool, and left over beside it",
    causes=("gpu-oom",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

CAUSE = "gpu-oom"
OPTION = "gpu_memory_utilization"
DEFAULT = 0.92
"""What vLLM 0.32.0 takes of a GPU where the option is not given (`config/cache.py`)."""
HEADROOM = float(2**30)
"""Bytes to leave for NCCL, expert rebalancing and transfer buffers. A working figure: the public incident that died of
it names no number."""


def check(ctx: Context) -> Iterator[Finding]:
    """Judge free memory of every GPU that an engine uses, and what engines on one GPU ask for together."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable(CAUSE, NO_PAIR)
        return
    found, lost = split([w.id for w in workers], lambda name: gpus(ctx, name))
    if lost:
        yield unread(CAUSE, lost, "host.gpus", "the GPUs of its host were not read", FIX_HOST)
    ours = {name: cards for name, cards in found.items() if cards}
    if not ours and not lost:
        yield not_applicable(CAUSE, "no engine uses a GPU")
    good: list[str] = []
    for name, cards in ours.items():
        said = [f for card in cards if (f := _judge(ctx, name, card)) is not None]
        yield from said
        if not said:
            good.append(f"{name} {min(c.free or 0.0 for c in cards) / 2**30:.1f} GiB free")
    yield from _shared(ctx, ours)
    if good:
        yield agrees(CAUSE, f"enough is free: {', '.join(good)}")


def _share(ctx: Context, name: str) -> float | None:
    given = amount(ctx, name, OPTION, "mem_fraction_static")
    worker = ctx.cluster.get(name)
    ours = worker is None or worker.engine in (None, "vllm")
    return DEFAULT if given is None and ours and was_configured(ctx, name) else given


def _judge(ctx: Context, name: str, card: Gpu) -> Finding | None:
    option = f"host.gpus[{card.index}].memory_free_bytes"
    if card.free is None or card.total is None:
        return unread(CAUSE, name, option, "free memory of the GPU was not read", FIX_HOST)
    seen = [Seen(name, option, card.free, "bytes")]
    if started(ctx, name):
        if card.free < HEADROOM:
            return warn(
                CAUSE,
                seen,
                f"at least {HEADROOM / 2**30:.0f} GiB beside the pool for NCCL, rebalancing and transfer buffers",
                f"lower {OPTION}, or leave memory out of the pool by kv_cache_memory_bytes",
            )
        return None
    share = _share(ctx, name)
    if share is None:
        return unread(CAUSE, name, OPTION, "what the engine will ask for was not read")
    if card.free < share * card.total:
        return must(
            CAUSE,
            [*seen, Seen(name, OPTION, share)],
            f"at least {share * card.total / 2**30:.1f} GiB free, else the engine refuses to start",
            f"stop what holds GPU {card.index} (`nvidia-smi`), or lower {OPTION}",
        )
    return None


def _shared(ctx: Context, ours: dict[str, tuple[Gpu, ...]]) -> Iterator[Finding]:
    """Judge engines that have a GPU in common."""
    names = list(ours)
    for i, name in enumerate(names):
        for other in names[:i]:
            common = {c.index for c in ours[name]} & {c.index for c in ours[other]}
            if not common or not same_host(ctx, name, other):
                continue
            shares = {n: _share(ctx, n) for n in (other, name)}
            told = {n: s for n, s in shares.items() if s is not None}
            if len(told) == 2 and sum(told.values()) > 1:
                yield must(
                    CAUSE,
                    [Seen(n, OPTION, s) for n, s in told.items()],
                    f"no more than 1 together, as both use GPU {min(common)}",
                    f"give each engine GPUs of its own by CUDA_VISIBLE_DEVICES, or lower {OPTION} of both",
                )
