"""NIXL uses the same backends on both sides, and ones this fabric can carry."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.options import Value, named
from pdops.diagnose.pairing import all_nixl, is_vllm, listed, rdma_devices
from pdops.diagnose.preflight import NO_ALERT, Seen, engines, fact, not_applicable, same, warn, was_configured
from pdops.model.cluster import Worker

META = CheckMeta(
    id="pair/nixl-backends",
    title="NIXL backends are the same on prefill and decode and right for the fabric",
    causes=("transport-config", "config-asymmetry"),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

DEFAULT = ("UCX",)
"""What vLLM 0.32 gives NIXL when no backend is asked for."""
EFA = ("efa", "rdmap")
"""How the names of AWS EFA devices begin; UCX reaches them over TCP only, libfabric over their own protocol."""


def check(ctx: Context) -> Iterator[Finding]:
    """Compare the lists of NIXL backends, in any order, and look for EFA devices without libfabric."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable("transport-config", "the inventory has no prefill and decode pair")
        return
    if all_nixl(ctx) is False:
        yield not_applicable("transport-config", "KV is not handed over by vLLM's NIXL connector")
        return
    option = named("backends")
    values = {w.id: _backends(ctx, w) for w in workers}
    yield from same(ctx, option, "list the same backends in the connector's extra configuration", values=values)
    efa = [w for w in workers if any(d.startswith(EFA) for d in rdma_devices(ctx, w.id) or ())]
    odd = [w for w in efa if (v := values[w.id]) is not None and "libfabric" not in (v.known or "")]
    if odd:
        yield warn(
            "transport-config",
            [Seen(w.id, option.name, v.raw) for w in odd if (v := values[w.id]) is not None],
            "LIBFABRIC on hosts with EFA devices",
            'set "backends": ["LIBFABRIC"] in the connector\'s extra configuration on all workers, or accept TCP over UCX',
        )


def _backends(ctx: Context, worker: Worker) -> Value | None:
    given = listed(fact(ctx, worker.id, *named("backends").aliases))
    if given is None and is_vllm(worker) and was_configured(ctx, worker.id):
        return Value(f"{'+'.join(DEFAULT)} (default)", _known(DEFAULT))
    return None if given is None else Value("+".join(given), _known(given))


def _known(names: tuple[str, ...]) -> str:
    return "+".join(sorted(name.casefold() for name in names))
