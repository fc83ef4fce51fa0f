"""KV is written and read in the same number format."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.options import Value, named
from pdops.diagnose.pairing import all_nixl, dtype, kv_dtype
from pdops.diagnose.preflight import NO_ALERT, Seen, engines, not_applicable, same, warn

META = CheckMeta(
    id="pair/kv-dtype",
    title="Model dtype and KV dtype are the same on prefill and decode",
    causes=("config-asymmetry",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

FIX = (
    "set the same --kv-cache-dtype on both sides: KV of another type is misread without an error, or crashes under load"
)


def check(ctx: Context) -> Iterator[Finding]:
    """Compare the model's dtype and the KV dtype; a KV dtype of `auto` is the model's where that is known."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable("config-asymmetry", "the inventory has no prefill and decode pair")
        return
    yield from same(
        ctx,
        named("dtype"),
        "set the same --dtype on both sides",
        default="auto",
        values={w.id: dtype(ctx, w.id) for w in workers},
    )
    option = named("kv_cache_dtype")
    written = {w.id: kv_dtype(ctx, w.id) for w in workers}
    resolved = {name: _resolved(ctx, name, value) for name, value in written.items()}
    found = tuple(same(ctx, option, FIX, default="auto", values=resolved))
    yield from found
    names = {value.raw.removesuffix(" by default") for value in written.values() if value is not None}
    if len(names) > 1 and not any(f.for_ or f.missing for f in found) and all_nixl(ctx) is not False:
        yield warn(
            option.cause,
            [Seen(name, option.name, value.raw) for name, value in written.items() if value is not None],
            "the same word on prefill and decode",
            f"write the same {option.name} on both sides: vLLM's handshake compares the word, not what it amounts to",
        )


def _resolved(ctx: Context, worker: str, given: Value | None) -> Value | None:
    if given is None or given.known is not None:
        return given
    model = dtype(ctx, worker)
    if model is None or model.known is None:
        return given
    return Value(f"{given.raw} ({model.known})", model.known)
