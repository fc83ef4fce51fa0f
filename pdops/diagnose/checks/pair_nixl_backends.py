"""NIXL uses the same backends on both sides, and ones this fabric can carry."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.backends import backends, efa_without_libfabric
from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.options import named
from pdops.diagnose.pairing import all_nixl
from pdops.diagnose.preflight import NO_ALERT, Seen, engines, not_applicable, same, warn

META = CheckMeta(
    id="pair/nixl-backends",
    title="NIXL backends are the same on prefill and decode and right for the fabric",
    causes=("transport-config", "config-asymmetry"),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)


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
    values = {w.id: backends(ctx, w) for w in workers}
    yield from same(ctx, option, "list the same backends in the connector's extra configuration", values=values)
    odd = efa_without_libfabric(ctx)
    if odd:
        yield warn(
            "transport-config",
            [Seen(name, option.name, raw) for name, raw in odd],
            "LIBFABRIC on hosts with EFA devices",
            'set "backends": ["LIBFABRIC"] in the connector\'s extra configuration on all workers, or accept TCP over UCX',
        )
