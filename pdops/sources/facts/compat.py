"""Work out the hash by which two vLLM NIXL connectors decide whether they may exchange KV.

The engine prints it at debug level only and puts it on no page, so it is made again from its inputs. Rules of vLLM 0.32
with connector version 14 (read in its `nixl/metadata.py` and `config/utils.py`): the SHA-256 of a JSON object with
sorted keys. Block size, layout, parallelism and the model's revision are not part of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CONNECTOR_VERSION = {"0.32": 14}
"""NIXL connector version by engine release."""
_CPU_BACKEND = "CPU_ATTN"
"""The only attention backend of the CPU platform."""
_HMA = frozenset(
    {
        "NixlConnector",
        "NixlPullConnector",
        "NixlPushConnector",
        "NixlPdopsConnector",
        "HiSparseConnector",
        "MoRIIOConnector",
        "DecodeBenchConnector",
        "MooncakeConnector",
        "MooncakeStoreConnector",
        "OffloadingConnector",
        "SimpleCPUOffloadConnector",
    }
)
"""Connectors that keep the hybrid KV cache manager on; MultiConnector does when all its children do."""
_EAGLE = ("eagle", "mtp", "medusa_eagle", "dflash")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What goes into the hash. `dtype` without the `torch.` prefix, `cache_dtype` as configured (`auto` stays so)."""

    version: str
    connector_version: int
    model: str
    dtype: str
    num_kv_heads: int
    head_size: int
    num_hidden_layers: int
    attention_backend: str
    cache_dtype: str
    hybrid_manager: bool
    transfer_mode: str = "pull"
    speculative: Mapping[str, Any] | None = None


def compat_hash(inputs: Inputs) -> str:
    """Return the hash as 64 hexadecimal digits."""
    document = {
        "vllm_version": inputs.version,
        "nixl_connector_version": inputs.connector_version,
        "model": inputs.model,
        "dtype": f"torch.{inputs.dtype}",
        "num_kv_heads": inputs.num_kv_heads,
        "head_size": inputs.head_size,
        "num_hidden_layers": inputs.num_hidden_layers,
        "attn_backend_name": inputs.attention_backend,
        "cache_dtype": inputs.cache_dtype,
        "is_hma_enabled": inputs.hybrid_manager,
        "speculative_config": None if inputs.speculative is None else dict(inputs.speculative),
        "transfer_mode": inputs.transfer_mode,
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def connector_version(version: str | None) -> int | None:
    """Return the NIXL connector version of an engine release, or None when it is not known."""
    return CONNECTOR_VERSION.get(".".join(version.split(".")[:2])) if version else None


def inputs_of(facts: Mapping[str, str]) -> tuple[Inputs | None, tuple[str, ...]]:
    """Return the inputs of one engine, or None and the facts that are missing.

    A value that this code would have to guess, such as the attention backend a GPU engine chose, is missing.
    """
    missing: list[str] = []

    def need(key: str, value: str | None) -> str:
        if value is None:
            missing.append(key)
        return value or ""

    version = facts.get("version")
    connector = connector_version(version)
    if connector is None:
        missing.append("version" if version is None else "connector_version")
    mla = "kv_lora_rank" in facts
    heads = "1" if mla else facts.get("num_key_value_heads")
    inputs = {
        "model": need("model", facts.get("model")),
        "dtype": need("dtype", _dtype(facts)),
        "attention_backend": need("attention_backend", _backend(facts)),
        "heads": need("num_key_value_heads", heads),
        "size": need("head_dim", _head_size(facts) if mla else facts.get("head_dim")),
        "layers": need("num_hidden_layers", facts.get("num_hidden_layers")),
        "cache_dtype": need("kv_cache_dtype", facts.get("kv_cache_dtype", facts.get("cache_dtype"))),
    }
    hybrid = _hybrid(facts)
    if hybrid is None:
        missing.append("disable_hybrid_kv_cache_manager")
    if _speculates(facts):
        missing.append("speculative_config (the draft model's layers)")
    for key, name in (("heads", "num_key_value_heads"), ("size", "head_dim"), ("layers", "num_hidden_layers")):
        if inputs[key] and not inputs[key].isdigit():
            missing.append(name)
    if missing or version is None or connector is None or hybrid is None:
        return None, tuple(dict.fromkeys(missing))
    return (
        Inputs(
            version=version,
            connector_version=connector,
            model=inputs["model"],
            dtype=inputs["dtype"],
            num_kv_heads=int(inputs["heads"]),
            head_size=int(inputs["size"]),
            num_hidden_layers=int(inputs["layers"]),
            attention_backend=inputs["attention_backend"],
            cache_dtype=inputs["cache_dtype"],
            hybrid_manager=hybrid,
            transfer_mode="push" if "NixlPushConnector" in _connectors(facts) else "pull",
        ),
        (),
    )


def uses_nixl(facts: Mapping[str, str]) -> bool:
    """Whether a worker's connector, or a child of it, is vLLM's NIXL connector."""
    return any(name.startswith("Nixl") for name in _connectors(facts))


def _connectors(facts: Mapping[str, str]) -> tuple[str, ...]:
    names = (facts["kv_connector"],) if "kv_connector" in facts else ()
    try:
        children = json.loads(facts.get("kv_connector_children", "[]"))
    except ValueError:
        children = []
    return (*names, *(str(child) for child in children)) if isinstance(children, list) else names


def _dtype(facts: Mapping[str, str]) -> str | None:
    given = facts.get("dtype", "").removeprefix("torch.")
    if given in ("half", "float"):
        return {"half": "float16", "float": "float32"}[given]
    if given not in ("", "auto"):
        return given
    own = facts.get("model_dtype", "")
    # `auto` turns float32 into a half format that depends on the device.
    return own if own in ("bfloat16", "float16") else None


def _backend(facts: Mapping[str, str]) -> str | None:
    if "attention_backend" in facts:
        return facts["attention_backend"]
    on_cpu = "cpu" in (facts.get("device"), facts.get("VLLM_TARGET_DEVICE"))
    return _CPU_BACKEND if on_cpu else None


def _head_size(facts: Mapping[str, str]) -> str | None:
    rank, rope = facts.get("kv_lora_rank", ""), facts.get("qk_rope_head_dim", "")
    return str(int(rank) + int(rope)) if rank.isdigit() and rope.isdigit() else None


def _hybrid(facts: Mapping[str, str]) -> bool | None:
    given = facts.get("disable_hybrid_kv_cache_manager")
    if given is not None:
        return {"true": False, "false": True}.get(given.casefold())
    names = [name for name in _connectors(facts) if name != "MultiConnector"]
    # Whether a connector of somebody else's supports the manager is in its code only.
    return True if names and all(name in _HMA for name in names) else None


def _speculates(facts: Mapping[str, str]) -> bool:
    text = facts.get("speculative_config", "").casefold()
    return text not in ("", "none", "null") and any(name in text for name in (*_EAGLE, "model"))
