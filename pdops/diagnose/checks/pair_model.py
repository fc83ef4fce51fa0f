"""Prefill and decode serve the same weights, read by the same tokenizer."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import DECISIVE, CheckMeta, Finding, Tier
from pdops.diagnose.options import TOKENIZER, Effect, Option, Value, named, read, value
from pdops.diagnose.pairing import first
from pdops.diagnose.preflight import (
    NO_ALERT,
    Seen,
    agrees,
    engines,
    fact,
    not_applicable,
    same,
    unread,
    warn,
    was_configured,
)
from pdops.model.cluster import Worker

META = CheckMeta(
    id="pair/model",
    title="Model, revision, tokenizer and quantisation are the same on prefill and decode",
    causes=("config-asymmetry", "version-skew"),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

SHAPE = ("architectures", "num_hidden_layers", "num_key_value_heads", "head_dim", "hidden_size")
"""What a model's own configuration says of its KV; equal where the model is, so it is compared only where it is known."""


def check(ctx: Context) -> Iterator[Finding]:
    """Compare model, revision, tokenizer, quantisation and the shape of the model."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable("config-asymmetry", "the inventory has no prefill and decode pair")
        return
    yield from same(ctx, named("model"), "serve one model id or path on both sides", seen_only=True)
    yield from _revision(ctx, workers)
    yield from same(
        ctx, named("quantization"), "give both sides the same checkpoint and --quantization", default="none"
    )
    if any(fact(ctx, w.id, *TOKENIZER.aliases) for w in workers):
        values = {w.id: _tokenizer(ctx, w) for w in workers}
        yield from same(ctx, TOKENIZER, "give both sides the same --tokenizer", values=values)
    for name in SHAPE:
        yield from _shape(ctx, name, workers)


def _revision(ctx: Context, workers: tuple[Worker, ...]) -> Iterator[Finding]:
    """Compare revisions; the handshake does not, so two downloads of a moving branch pass it (a public incident)."""
    option = named("revision")
    values = {w.id: first(ctx, w.id, option, "resolved_revision", "model_revision", "revision") for w in workers}
    names = {w.id: read(named("model"), ctx.view.facts.get(w.id, {}), w) for w in workers}
    unset = [w.id for w in workers if values[w.id] is None or values[w.id].known is None]  # type: ignore[union-attr]
    local = [n for n in names.values() if n is not None and n.raw.startswith(("/", "./", "~"))]
    if len(unset) < len(workers):
        yield from same(ctx, option, "pin the same commit with --revision on both sides", values=values)
    elif len(local) == len(workers):
        yield agrees(option.cause, "the model is a local path on all workers, which has no revision")
    elif all(was_configured(ctx, w.id) for w in workers):
        yield warn(
            option.cause,
            [Seen(name, option.name, "not pinned") for name in unset],
            "one commit on all workers",
            "pin the commit with --revision on both sides: workers that download at different times may get different"
            " weights, and no handshake compares them",
        )
    else:
        fix = "read the snapshot folder of the model's cache, or pin --revision"
        yield unread(option.cause, unset, option.name, "the revision that was loaded was not read", fix)


def _tokenizer(ctx: Context, worker: Worker) -> Value | None:
    facts = ctx.view.facts.get(worker.id, {})
    return read(TOKENIZER, facts) or read(named("model"), facts, worker)


def _shape(ctx: Context, name: str, workers: tuple[Worker, ...]) -> Iterator[Finding]:
    known = {w.id: text for w in workers if (text := fact(ctx, w.id, name)) is not None}
    if len(set(known.values())) > 1:
        option = Option(name=name, aliases=(name,), cause="config-asymmetry", ratio=DECISIVE, effect=Effect.WRONG)
        fix = f"load the same model on both sides: with another {name} the KV has another shape"
        yield from same(ctx, option, fix, values={worker: value(option, text) for worker, text in known.items()})
