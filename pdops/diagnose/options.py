"""Options that prefill and decode must agree on, and how to read and compare them; shared by checks and preflight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from pdops.diagnose.finding import DECISIVE, MODERATE, STRONG, WEAK
from pdops.model.cluster import Worker


class Effect(StrEnum):
    """What a difference does."""

    REFUSED = "refused"
    """The sides refuse or fail to exchange KV, so KV that flows without failure speaks against it."""
    WRONG = "wrong"
    """KV may be taken in and misread."""
    MISSED = "missed"
    """The same prompt is looked up under another key and never found."""


class Unset(StrEnum):
    """What a value such as `None` or `auto` means."""

    OFF = "off"
    DEFAULT = "default"
    """The engine chose something it does not tell, so it cannot be compared with a named value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: the names engines give it, which cause a difference points to, and how much it weighs."""

    name: str
    aliases: tuple[str, ...]
    cause: str
    ratio: float
    effect: Effect
    also: str | None = None
    unset: Unset = Unset.DEFAULT

    @property
    def causes(self) -> tuple[str, ...]:
        """The causes a difference may point to, the likeliest first."""
        return (self.cause,) if self.also is None else (self.cause, self.also)


def _must(name: str, *aliases: str, ratio: float = STRONG, effect: Effect = Effect.REFUSED) -> Option:
    return Option(name=name, aliases=(name, *aliases), cause="config-asymmetry", ratio=ratio, effect=effect)


OPTIONS = (
    _must("model", "model_path", "model_id", ratio=DECISIVE, effect=Effect.WRONG),
    Option(
        name="revision",
        aliases=("revision", "model_revision", "resolved_revision"),
        cause="version-skew",
        also="config-asymmetry",
        ratio=STRONG,
        effect=Effect.WRONG,
    ),
    _must("dtype", "model_dtype", "torch_dtype", effect=Effect.WRONG),
    _must("kv_cache_dtype", "cache_dtype", ratio=DECISIVE, effect=Effect.WRONG),
    Option(
        name="quantization",
        aliases=("quantization",),
        cause="config-asymmetry",
        ratio=MODERATE,
        effect=Effect.WRONG,
        unset=Unset.OFF,
    ),
    _must("block_size", "page_size"),
    _must("effective_attention_block_size"),
    _must("kv_cache_layout", "kv_layout", "vllm_kv_cache_layout"),
    _must("enable_permute_local_kv", ratio=MODERATE),
    _must("attention_backend", "vllm_attention_backend"),
    _must("kv_connector", "disaggregation_transfer_backend", ratio=DECISIVE),
    _must("enable_cross_layers_blocks"),
    _must("disable_hybrid_kv_cache_manager"),
    Option(
        name="backends",
        aliases=("backends", "nixl_backends"),
        cause="config-asymmetry",
        also="transport-config",
        ratio=STRONG,
        effect=Effect.REFUSED,
    ),
    Option(
        name="speculative_config",
        aliases=("speculative_config", "speculative_algorithm", "speculative_method"),
        cause="config-asymmetry",
        ratio=MODERATE,
        effect=Effect.REFUSED,
        unset=Unset.OFF,
    ),
    _must("pipeline_parallel_size", "pp_size", ratio=MODERATE),
    _must("decode_context_parallel_size", "dcp_size", ratio=MODERATE),
    Option(
        name="version",
        aliases=("version", "vllm_version", "sglang_version", "engine_version"),
        cause="version-skew",
        ratio=STRONG,
        effect=Effect.REFUSED,
    ),
    Option(
        name="connector_version",
        aliases=("connector_version", "nixl_connector_version", "kv_connector_version"),
        cause="version-skew",
        ratio=DECISIVE,
        effect=Effect.REFUSED,
    ),
    Option(name="nixl_version", aliases=("nixl_version",), cause="version-skew", ratio=MODERATE, effect=Effect.REFUSED),
    Option(
        name="prefix_caching_hash_algo",
        aliases=("prefix_caching_hash_algo", "hash_algo", "pre_caching_hash_algorithm"),
        cause="hash-mismatch",
        ratio=MODERATE,
        effect=Effect.MISSED,
    ),
    Option(
        name="PYTHONHASHSEED",
        aliases=("pythonhashseed",),
        cause="hash-mismatch",
        ratio=MODERATE,
        effect=Effect.MISSED,
    ),
    Option(
        name="chunk_size",
        aliases=("chunk_size", "lmcache_chunk_size"),
        cause="hash-mismatch",
        ratio=MODERATE,
        effect=Effect.MISSED,
    ),
)
TENSOR_PARALLEL = Option(
    name="tensor_parallel_size",
    aliases=("tensor_parallel_size", "tp_size", "tp"),
    cause="config-asymmetry",
    ratio=WEAK,
    effect=Effect.REFUSED,
)
"""May differ where each KV head has one owner on both sides; see `parallel_ratio`."""
LENGTH = Option(
    name="max_model_len",
    aliases=("max_model_len", "context_length"),
    cause="config-asymmetry",
    ratio=MODERATE,
    effect=Effect.REFUSED,
)
"""Decode must take at least what prefill takes; more is fine."""
COMPAT_HASH = Option(
    name="compat_hash",
    aliases=("compat_hash",),
    cause="config-asymmetry",
    also="version-skew",
    ratio=DECISIVE,
    effect=Effect.REFUSED,
)
"""What vLLM's NIXL handshake compares; recomputed from its inputs where the engine does not tell it."""
TOKENIZER = Option(
    name="tokenizer",
    aliases=("tokenizer", "tokenizer_path"),
    cause="config-asymmetry",
    ratio=MODERATE,
    effect=Effect.WRONG,
)
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "total_num_kv_heads")

_BY_NAME = {o.name: o for o in (*OPTIONS, TENSOR_PARALLEL, LENGTH, COMPAT_HASH, TOKENIZER)}
_SAME = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float": "float32",
    "fp8": "fp8_e4m3",
}
_UNSET = frozenset({"", "none", "null", "auto", "default"})
_QUANTISED = ("fp8", "int8", "int4", "fp4", "nvfp4", "mxfp")
_NESTED_ELSEWHERE = ("draft", "lora", "speculative", "tokenizer")


@dataclass(frozen=True, slots=True)
class Value:
    """An option's value as read, and in the form that is compared; `known` None when it says nothing definite."""

    raw: str
    known: str | None


def named(name: str) -> Option:
    """Return the option of that name.

    Raises:
        KeyError: there is none.
    """
    return _BY_NAME[name]


def read(option: Option, facts: Mapping[str, str], worker: Worker | None = None) -> Value | None:
    """Return an option's value among a worker's facts, or None when it is not there or given twice differently.

    A fact goes by the engine's own name, alone or at the end of a dotted path.
    """
    found = {facts[alias].strip() for alias in option.aliases if alias in facts} or {
        text.strip()
        for key, text in facts.items()
        if _leaf(key) in option.aliases and not any(part in key.casefold() for part in _elsewhere(option))
    }
    if not found and option.name == "version" and worker is not None and worker.version:
        found = {worker.version}
    if len(found) != 1:
        return None
    raw = found.pop()
    return Value(raw, _normal(option, raw))


def value(option: Option, raw: str) -> Value:
    """Return a value given by hand in the form that is compared."""
    return Value(raw, _normal(option, raw))


def number(aliases: tuple[str, ...], facts: Mapping[str, str]) -> int | None:
    """Return a whole number among facts by any of its names, or None."""
    for key, text in facts.items():
        if _leaf(key) in aliases and text.strip().isdigit():
            return int(text)
    return None


def differ(option: Option, a: Value, b: Value) -> bool | None:
    """Whether two values differ; None when that cannot be told."""
    if option.name == "PYTHONHASHSEED" and (a.known is None or b.known is None):
        # Each process draws a seed of its own then, so even two of them differ.
        return True
    if a.known is not None and b.known is not None:
        return _paths_differ(a.known, b.known) if option.name == "model" else a.known != b.known
    if a.known is None and b.known is None:
        return False
    if option.unset is Unset.OFF:
        return True
    named = a.known if a.known is not None else b.known
    if option.name == "kv_cache_dtype" and named is not None and named.startswith(_QUANTISED):
        # `auto` follows the model's dtype, which is never a quantised one.
        return True
    return None


def parallel_ratio(src: int, dst: int, heads: int | None) -> float | None:
    """Return the weight of different tensor parallelism, None when equal.

    It is more than a hint where one side is not a multiple of the other, or has more ranks than KV heads so that a head
    has several owners (public incidents with 2 KV heads over 4 ranks).
    """
    if src == dst:
        return None
    small, large = sorted((max(src, 1), max(dst, 1)))
    return MODERATE if large % small or (heads is not None and large > heads) else WEAK


@lru_cache(maxsize=4096)
def _leaf(key: str) -> str:
    return key.rpartition(".")[2].strip("-").replace("-", "_").casefold()


def _elsewhere(option: Option) -> tuple[str, ...]:
    return tuple(part for part in _NESTED_ELSEWHERE if not any(part in alias for alias in option.aliases))


def _normal(option: Option, raw: str) -> str | None:
    text = raw.strip().strip("'\"").casefold().removeprefix("torch.")
    if option.name == "PYTHONHASHSEED":
        return None if text in ("", "none", "random") else text
    if text in _UNSET:
        return None
    if text.endswith(".0") and text[:-2].isdigit():
        text = text[:-2]
    return _SAME.get(text, text) if option.name.endswith("dtype") else text


def _paths_differ(a: str, b: str) -> bool | None:
    first, second = a.rstrip("/").rpartition("/")[2], b.rstrip("/").rpartition("/")[2]
    if first == second:
        return False
    # A local path may name the same model by a folder of any name.
    return None if a.startswith("/") or b.startswith("/") else True
