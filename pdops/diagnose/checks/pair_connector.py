"""Prefill and decode hand KV over by the same connector, in the same direction, wrapped the same way."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.options import Value, named
from pdops.diagnose.pairing import HandOff, children, connectors, hand_off
from pdops.diagnose.preflight import (
    NO_ALERT,
    Seen,
    agrees,
    engines,
    fact,
    not_applicable,
    same,
    warn,
)

META = CheckMeta(
    id="pair/connector",
    title="Connector, its direction and its nesting are the same on prefill and decode",
    causes=("config-asymmetry",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

_SAME = {"NixlPdopsConnector": "NixlConnector"}
"""The engine plugin is the stock connector, and counts beside it."""

CROSS_LAYER = "enable_cross_layers_blocks"


def check(ctx: Context) -> Iterator[Finding]:
    """Compare the connector that hands KV over, what it is wrapped in, and whether layers share blocks."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable("config-asymmetry", "the inventory has no prefill and decode pair")
        return
    option = named("kv_connector")
    values = {w.id: _speaks(ctx, w.id) for w in workers}
    found = tuple(same(ctx, option, "configure the same connector on both sides", values=values))
    yield from found
    nested = {w.id: _nesting(ctx, w.id) for w in workers if fact(ctx, w.id, *option.aliases) is not None}
    if len(set(nested.values())) > 1 and not any(f.for_ for f in found):
        yield warn(
            option.cause,
            [Seen(name, option.name, text) for name, text in nested.items()],
            "the same nesting on prefill and decode",
            "wrap the connector the same way on both sides: with unlike wrappers one side may keep its KV in another"
            " arrangement and be refused (a public incident)",
        )
    layers = named(CROSS_LAYER)
    if any(fact(ctx, w.id, CROSS_LAYER) is not None for w in workers):
        yield from same(ctx, layers, f"set {CROSS_LAYER} the same in the connector's extra configuration")
    elif len(nested) == len(workers):
        yield agrees(option.cause, f"{CROSS_LAYER} is set on no worker")


def _speaks(ctx: Context, worker: str) -> Value | None:
    """Return what goes over the wire: names that mean the same connector are the same, and stores do not count."""
    name, way = fact(ctx, worker, *named("kv_connector").aliases), hand_off(ctx, worker)
    if name is None or way is None:
        return None
    if way is not HandOff.OTHER:
        return Value(f"{_nesting(ctx, worker)}, {way.value}", way.value)
    inner = "+".join(connectors(ctx, worker) or (name,))
    return Value(_nesting(ctx, worker), inner.casefold())


def _nesting(ctx: Context, worker: str) -> str:
    name = fact(ctx, worker, *named("kv_connector").aliases) or "none"
    name = _SAME.get(name, name)
    inner = [_SAME.get(n := str(c.get("kv_connector", "?")), n) for c in children(ctx, worker)]
    return f"{name}[{' + '.join(inner)}]" if inner else name
