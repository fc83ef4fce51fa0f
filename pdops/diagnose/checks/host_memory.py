"""The host has less memory than the engines and stores that are to run on it take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pdops.diagnose.context import Context
from pdops.diagnose.devices import gpus
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.hosts import FIX_ENVIRONMENT, FIX_HOST, env, host_of, leaf, ranks, started
from pdops.diagnose.preflight import Seen, agrees, amount, fact, must, not_applicable, unread, warn
from pdops.model.cluster import Role, Worker

META = CheckMeta(
    id="host/memory",
    title="Host memory: enough for the engines and stores asked for",
    causes=("engine-crash",),
    needs=(),
    tier=Tier.PAIR,
    no_alert="whether memory suffices is judged before a start; growth afterwards is judged by host/memory-growth",
    preflight=True,
)

CAUSE = "engine-crash"
FREE = "host.memory_available_bytes"
TOTAL = "host.memory_total_bytes"
LIMIT = "host.memory_limit_bytes"
ENGINE_BYTES = 2.0e9
"""Bytes an engine takes beside KV and weights: the sum of peak resident memory of one vLLM 0.32.0 CPU engine with a tiny
model, measured. Each further rank is taken to need as much."""
LOW = 0.05
"""Share of the host's memory that should be left once everything runs; a working figure."""
_GIB = float(2**30)


def check(ctx: Context) -> Iterator[Finding]:
    """Add up, by host, what has not started yet, and set it beside what is available."""
    workers = ctx.cluster.of_role(Role.PREFILL, Role.DECODE, Role.COLOCATED, Role.KVSTORE)
    if not workers:
        yield not_applicable(CAUSE, "the inventory has no engine and no store")
        return
    hosts: dict[str, list[Worker]] = {}
    homeless: list[str] = []
    for worker in workers:
        home = host_of(ctx, worker.id)
        if home is None:
            homeless.append(worker.id)
        else:
            hosts.setdefault(home, []).append(worker)
    if homeless:
        yield unread(CAUSE, homeless, "host.name", "its host is not known", FIX_HOST)
    for home, crew in hosts.items():
        yield from _judge(ctx, home, crew)


def _judge(ctx: Context, home: str, crew: list[Worker]) -> Iterator[Finding]:
    told_free = [v for w in crew if (v := amount(ctx, w.id, FREE)) is not None]
    frees = told_free and [*told_free, *(v for w in crew if (v := amount(ctx, w.id, LIMIT)) is not None)]
    if not frees:
        yield unread(CAUSE, [w.id for w in crew], FREE, f"the memory of {home} was not read", FIX_HOST)
        return
    free = min(frees)
    needs = {w.id: _need(ctx, w) for w in crew if not _runs(ctx, w)}
    for name, need in needs.items():
        if need.missing:
            yield unread(CAUSE, name, need.missing, "how much memory it will take is not known", FIX_ENVIRONMENT)
    told = {name: need.least for name, need in needs.items() if need.least}
    wanted = sum(told.values())
    if wanted > free:
        yield must(
            CAUSE,
            [
                Seen(crew[0].id, FREE, free, "bytes"),
                *(Seen(n, "memory it will take", v, "bytes") for n, v in told.items()),
            ],
            f"at least {wanted / 1e9:.1f} GB available on {home}",
            "start fewer engines on this host, give each a smaller KV cache (VLLM_CPU_KVCACHE_SPACE) or store segment, "
            "or free memory",
        )
        return
    total = max((v for w in crew if (v := amount(ctx, w.id, TOTAL)) is not None), default=None)
    if total is not None and free - wanted < LOW * total:
        yield warn(
            CAUSE,
            [Seen(crew[0].id, FREE, free, "bytes")],
            f"{LOW:.0%} of {total / 1e9:.1f} GB left on {home} once everything runs",
            "free memory, or move an engine to another host, before the kernel ends one",
        )
    elif not any(need.missing for need in needs.values()):
        yield agrees(CAUSE, f"{home} has {free / 1e9:.1f} GB available, {wanted / 1e9:.1f} GB are still to be taken")


def _runs(ctx: Context, worker: Worker) -> bool:
    """Whether a worker has taken its memory already."""
    if worker.role is Role.KVSTORE:
        return fact(ctx, worker.id, "reachable") == "true"
    return started(ctx, worker.id)


class _Need(NamedTuple):
    """Bytes a worker will take at least, and the fact without which it cannot be said how much more."""

    least: float = 0.0
    missing: str = ""


def _need(ctx: Context, worker: Worker) -> _Need:
    if worker.role is Role.KVSTORE:
        size = amount(ctx, worker.id, "segment_total_bytes")
        return _Need(missing="segment_total_bytes") if size is None else _Need(size)
    cards = gpus(ctx, worker.id)
    if cards is None:
        return _Need(missing="host.gpus")
    n = ranks(ctx, worker.id, "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
    if cards:
        # Each of these is an option; one that is not given takes nothing.
        offload = sum(amount(ctx, worker.id, n) or 0.0 for n in ("cpu_offload_gb", "swap_space", "kv_offloading_size"))
        return _Need(n * (ENGINE_BYTES + offload * _GIB))
    space = leaf(ctx, worker.id, "kv_cache_memory_bytes")
    if space is not None and space.isdecimal():
        pool = float(space)
    else:
        given = env(ctx, worker.id, "VLLM_CPU_KVCACHE_SPACE")
        if not given or not given.isdecimal() or given == "0":
            return _Need(missing="VLLM_CPU_KVCACHE_SPACE")
        pool = float(given) * _GIB
    weights = amount(ctx, worker.id, "model_bytes")
    return _Need(n * (ENGINE_BYTES + pool) + (weights or 0.0), "" if weights is not None else "model_bytes")
