"""KV lies in memory in the same order, or decode is told to reorder it."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.options import Value, named
from pdops.diagnose.pairing import first, is_latent
from pdops.diagnose.preflight import NO_ALERT, engines, fact, flag, must, not_applicable, same, warn
from pdops.model.cluster import Role

META = CheckMeta(
    id="pair/kv-layout",
    title="KV layout is the same on prefill and decode, or decode permutes it",
    causes=("config-asymmetry",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

PERMUTE = "enable_permute_local_kv"
_LONG = {"hnd": "lbhnc", "nhd": "lbnhc"}
"""Names of one layout in older and newer releases of vLLM."""


def check(ctx: Context) -> Iterator[Finding]:
    """Compare the KV layout (vLLM refuses unlike ones, except heads-first into tokens-first with the permute flag)."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable("config-asymmetry", "the inventory has no prefill and decode pair")
        return
    if any(is_latent(ctx, w.id) for w in workers):
        yield not_applicable(
            "config-asymmetry", "the model keeps one latent vector for all heads, so there is one layout"
        )
        return
    option = named("kv_cache_layout")
    values = {
        w.id: _layout(first(ctx, w.id, option, "kv_cache_layout", "kv_layout", "VLLM_KV_CACHE_LAYOUT")) for w in workers
    }
    permuted = _permuted(ctx, values)
    fix = (
        f"set VLLM_KV_CACHE_LAYOUT the same on both sides; {PERMUTE} works and is experimental"
        if permuted
        else f"set VLLM_KV_CACHE_LAYOUT the same on both sides, or HND on prefill and {PERMUTE} on decode"
    )
    yield from same(ctx, option, fix, values=values, say=warn if permuted else must)


def _layout(given: Value | None) -> Value | None:
    return None if given is None else Value(given.raw, _LONG.get(given.known or "", given.known))


def _permuted(ctx: Context, values: dict[str, Value | None]) -> bool:
    def of(role: Role) -> set[str | None]:
        return {None if (v := values[w.id]) is None else v.known for w in ctx.cluster.of_role(role)}

    told = all(flag(fact(ctx, w.id, PERMUTE)) for w in ctx.cluster.of_role(Role.DECODE))
    return told and of(Role.PREFILL) == {"lbhnc"} and of(Role.DECODE) == {"lbnhc"}
