"""Engine, connector and transport library are of versions that speak to each other."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.options import named, read
from pdops.diagnose.pairing import all_nixl
from pdops.diagnose.preflight import (
    NO_ALERT,
    Seen,
    agrees,
    engines,
    must,
    not_applicable,
    same,
    unread,
    warn,
)

META = CheckMeta(
    id="pair/versions",
    title="Engine, connector and NIXL versions are the same on prefill and decode",
    causes=("version-skew",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

FIX = "roll both pools to one image, as matched sets, and let the router pair only workers of one set"


def check(ctx: Context) -> Iterator[Finding]:
    """Compare the kind of engine and the versions of engine, connector and NIXL."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable("version-skew", "the inventory has no prefill and decode pair")
        return
    kinds = [Seen(w.id, "engine", w.engine) for w in workers if w.engine is not None]
    if len({seen.value for seen in kinds}) > 1:
        yield must("version-skew", kinds, "one kind of engine", "run the same engine on both sides of a pair")
        return
    yield from same(ctx, named("version"), FIX, seen_only=True)
    yield from _connector(ctx)
    nixl = all_nixl(ctx)
    if nixl is False:
        yield not_applicable(
            "version-skew", "KV is not handed over by NIXL on all workers, so its version is not compared"
        )
    else:
        # The wire format of NIXL's metadata may change between releases, but no handshake compares them.
        yield from same(ctx, named("nixl_version"), "install one NIXL version on both sides", seen_only=True, say=warn)


def _connector(ctx: Context) -> Iterator[Finding]:
    option = named("connector_version")
    told = {w.id: read(option, ctx.view.facts.get(w.id, {})) for w in engines(ctx)}
    if any(told.values()):
        yield from same(ctx, option, FIX, seen_only=True, values=told)
        return
    builds = [v.known for w in engines(ctx) if (v := read(named("version"), ctx.view.facts.get(w.id, {}), w))]
    if len(builds) == len(engines(ctx)) and len(set(builds)) == 1:
        yield agrees("version-skew", "the connector is part of the engine, whose version is the same")
    elif len(builds) < len(engines(ctx)):
        yield unread("version-skew", [w.id for w in engines(ctx)], option.name, f"{option.name} was not read")
