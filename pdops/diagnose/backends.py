"""Which backends NIXL was given, and whether they suit the devices of the host; shared by preflight and diagnosis."""

from __future__ import annotations

from pdops.diagnose.context import Context
from pdops.diagnose.options import Value, named
from pdops.diagnose.pairing import is_vllm, listed, rdma_devices
from pdops.diagnose.preflight import engines, fact, was_configured
from pdops.model.cluster import Worker

DEFAULT = ("UCX",)
"""What vLLM 0.32 gives NIXL when no backend is asked for."""
EFA = ("efa", "rdmap")
"""How the names of AWS EFA devices begin; UCX reaches them over TCP only, libfabric over their own protocol."""


def backends(ctx: Context, worker: Worker) -> Value | None:
    """Return the NIXL backends of a worker in one order, or None when they were not read."""
    given = listed(fact(ctx, worker.id, *named("backends").aliases))
    if given is None and is_vllm(worker) and was_configured(ctx, worker.id):
        return Value(f"{'+'.join(DEFAULT)} (default)", _known(DEFAULT))
    return None if given is None else Value("+".join(given), _known(given))


def efa_without_libfabric(ctx: Context) -> tuple[tuple[str, str], ...]:
    """Return (worker, backends) of workers on hosts with EFA devices whose NIXL was not given libfabric."""
    found = []
    for worker in engines(ctx):
        given = backends(ctx, worker)
        efa = any(device.startswith(EFA) for device in rdma_devices(ctx, worker.id) or ())
        if efa and given is not None and "libfabric" not in (given.known or ""):
            found.append((worker.id, given.raw))
    return tuple(found)


def _known(names: tuple[str, ...]) -> str:
    return "+".join(sorted(name.casefold() for name in names))
