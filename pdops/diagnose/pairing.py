"""What the facts of a worker say about how it hands KV over; shared by the preflight checks of pairs."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

from pdops.diagnose.context import Context
from pdops.diagnose.finding import Finding
from pdops.diagnose.options import KV_HEADS, Option, Value, named, number, read, value
from pdops.diagnose.preflight import amount, engines, fact, must, same, unread, was_configured
from pdops.model.cluster import Worker

STORES = ("store", "lmcache", "flexkv", "hf3fs")
"""Parts of the names of connectors that keep KV where other workers can find it."""
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}
_HYBRID = (
    "mamba",
    "jamba",
    "bamba",
    "zamba",
    "hybrid",
    "qwen3next",
    "qwen3_next",
    "lfm2",
    "plamo2",
    "falconh1",
    "nemotronh",
)
_LATENT = ("deepseek", "kimi", "longcat", "glm4moelite", "minicpm3")


class HandOff(StrEnum):
    """Who moves KV between prefill and decode, and which side starts it."""

    NIXL_PULL = "nixl (decode pulls)"
    NIXL_PUSH = "nixl (prefill pushes)"
    OTHER = "other"

    @property
    def nixl(self) -> bool:
        """Whether vLLM's NIXL connector does it."""
        return self is not HandOff.OTHER


def connectors(ctx: Context, worker: str) -> tuple[str, ...] | None:
    """Return the names of a worker's connectors, children instead of a wrapper, or None when they were not read."""
    name = fact(ctx, worker, "kv_connector", "disaggregation_transfer_backend")
    if name is None:
        return None
    return tuple(str(c.get("kv_connector", "?")) for c in children(ctx, worker)) or (name,)


def children(ctx: Context, worker: str) -> tuple[dict[str, Any], ...]:
    """Return the configurations of the connectors inside a wrapper, empty when there are none or they make no sense."""
    listed = _parsed(fact(ctx, worker, "kv_connector_children"))
    if not isinstance(listed, list):
        return ()
    return tuple(c if isinstance(c, dict) else {"kv_connector": str(c)} for c in listed)


def hand_off(ctx: Context, worker: str) -> HandOff | None:
    """Return how a worker hands KV over, or None when its connector was not read."""
    names = connectors(ctx, worker)
    if names is None:
        return None
    known = ctx.cluster.get(worker)
    if known is not None and known.engine == "sglang":
        return HandOff.OTHER
    ours = [n.casefold() for n in names if "nixl" in n.casefold()]
    if not ours:
        return HandOff.OTHER
    return HandOff.NIXL_PUSH if any("push" in n for n in ours) else HandOff.NIXL_PULL


def all_nixl(ctx: Context) -> bool | None:
    """Whether all workers hand over by vLLM's NIXL connector; None when that is known of none."""
    told = [h for w in engines(ctx) if (h := hand_off(ctx, w.id)) is not None]
    return None if not told else all(h.nixl for h in told)


def shares_kv(ctx: Context) -> bool | None:
    """Whether workers look KV up that others stored; None when no connector was read and no store is known."""
    told = [c for w in engines(ctx) if (c := connectors(ctx, w.id)) is not None]
    if any(part in name.casefold() for names in told for name in names for part in STORES):
        return True
    if any(w.role == "kvstore" for w in ctx.cluster.workers):
        return True
    return False if len(told) == len(engines(ctx)) else None


def is_vllm(worker: Worker) -> bool:
    """Whether a worker is a vLLM engine; one of unknown kind may be."""
    return worker.engine is None or worker.engine.startswith("vllm")


def first(ctx: Context, worker: str, option: Option, *names: str) -> Value | None:
    """Return the first of these facts that says something definite, else the first that is there, else by any name.

    A worker may tell one thing more than once, what it was asked for and what came of it.
    """
    facts = ctx.view.facts.get(worker, {})
    told = [value(option, facts[name]) for name in names if name in facts]
    definite = next((v for v in told if v.known is not None), None)
    return definite or (told[0] if told else read(option, facts, ctx.cluster.get(worker)))


def dtype(ctx: Context, worker: str) -> Value | None:
    """Return the model's dtype: as set, else of the checkpoint where `auto` keeps it.

    vLLM turns a float32 checkpoint into a half format that depends on the device.
    """
    set_, own = (first(ctx, worker, named("dtype"), name) for name in ("dtype", "model_dtype"))
    if set_ is None or set_.known is not None or own is None or own.known not in ("bfloat16", "float16"):
        return set_
    return Value(f"{set_.raw} ({own.known})", own.known)


def kv_dtype(ctx: Context, worker: str) -> Value | None:
    """Return the KV dtype as set, `auto` when the worker was started without it."""
    told = first(ctx, worker, named("kv_cache_dtype"), "kv_cache_dtype", "cache_dtype")
    return Value("auto by default", None) if told is None and was_configured(ctx, worker) else told


def heads(ctx: Context) -> int | None:
    """Return the model's KV heads as any engine tells, or None."""
    return next((h for w in engines(ctx) if (h := number(KV_HEADS, ctx.view.facts.get(w.id, {}))) is not None), None)


def is_hybrid(ctx: Context, worker: str) -> bool | None:
    """Whether a model keeps state other than attention KV; None when its architecture was not read."""
    names = fact(ctx, worker, "architectures")
    if names is None:
        return None
    return any(part in names.casefold() for part in _HYBRID)


def is_latent(ctx: Context, worker: str) -> bool:
    """Whether a model is known to keep one latent vector for all heads (MLA)."""
    if (rank := amount(ctx, worker, "kv_lora_rank")) is not None:
        return rank > 0
    return any(part in (fact(ctx, worker, "architectures") or "").casefold() for part in _LATENT)


def alike(ctx: Context) -> bool | None:
    """Whether all engines run on the same kind of accelerator, the CPU counted as one; None when not all were read."""
    kinds = [_kind(ctx, w.id) for w in engines(ctx)]
    known = {kind for kind in kinds if kind is not None}
    return False if len(known) > 1 else None if None in kinds else True


def _kind(ctx: Context, worker: str) -> frozenset[str] | None:
    if "cpu" in (fact(ctx, worker, "device"), fact(ctx, worker, "VLLM_TARGET_DEVICE")):
        return frozenset({"cpu"})
    found = _parsed(fact(ctx, worker, "host.gpus"))
    if not isinstance(found, list):
        return None
    return frozenset(str(g["name"]) for g in found if isinstance(g, dict) and "name" in g) or frozenset({"cpu"})


def chosen(
    ctx: Context, option: Option, fix: str, say: Callable[..., Finding] = must, names: tuple[str, ...] = ()
) -> Iterator[Finding]:
    """Compare an option whose default the engine picks by its hardware, so that unset ones are alike only on like hardware.

    `names` are facts that tell it, what came of it first.
    """
    values = {w.id: first(ctx, w.id, option, *names) for w in engines(ctx)}
    configured = all(was_configured(ctx, name) for name in values)
    if configured and not any(values.values()) and (same_kind := alike(ctx)) is not True:
        where = "accelerators differ" if same_kind is False else "accelerators of the hosts were not read"
        why = f"{option.name} is set on no worker, each engine picks one for its hardware, and the {where}"
        yield unread(option.cause, list(values), option.name, why, f"{fix}, or read the engines after start")
    else:
        yield from same(ctx, option, fix, say=say, values=values)


def rdma_devices(ctx: Context, worker: str) -> tuple[str, ...] | None:
    """Return the names of the RDMA devices on a worker's host, or None when they were not read."""
    found = _parsed(fact(ctx, worker, "host.rdma"))
    return tuple(sorted(map(str, found))) if isinstance(found, dict) else None


def kv_bytes_per_token(ctx: Context, worker: str) -> float | None:
    """Return bytes of KV a token takes over all ranks: the inventory's, else from the model's shape, or None.

    Keys and values of each layer and KV head: 2 x layers x heads x head dimension x bytes of the KV type.
    """
    if ctx.cluster.kv_bytes_per_token:
        return ctx.cluster.kv_bytes_per_token
    facts = ctx.view.facts.get(worker, {})
    layers, kv_heads = amount(ctx, worker, "num_hidden_layers"), number(KV_HEADS, facts)
    size = amount(ctx, worker, "head_dim", "head_size")
    kind = kv_dtype(ctx, worker)
    if kind is None or kind.known is None:
        kind = dtype(ctx, worker)
    if layers is None or kv_heads is None or size is None or kind is None or kind.known is None:
        return None
    width = 1 if kind.known.startswith("fp8") else _BYTES.get(kind.known)
    return None if width is None or is_latent(ctx, worker) else 2 * layers * kv_heads * size * width


def listed(text: str | None) -> tuple[str, ...] | None:
    """Return a list as given in JSON, in Python or with commas; None when nothing is given."""
    if text is None:
        return None
    made = _parsed(text)
    if isinstance(made, list | tuple):
        return tuple(str(item) for item in made)
    return tuple(part.strip() for part in text.strip("[]").split(",") if part.strip())


def _parsed(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
