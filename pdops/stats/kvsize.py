"""How many bytes the KV of a request takes, from the shape of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DTYPE_BYTES = {
    "float32": 4.0,
    "float": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "half": 2.0,
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "fp8_inc": 1.0,
}
"""Bytes of one stored number, by the engine's name for it."""
FP8_MLA_BYTES = 656.0
"""Bytes a token and layer of vLLM's fp8_ds_mla layout: 512 latents, four scales of four bytes, 64 RoPE values of two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvShape:
    """Bytes of KV of one token in one layer, and in how many layers all tokens or only the newest `window` are kept.

    Layers that keep no KV by token (linear attention, state spaces) are in neither number.
    """

    layer_bytes: float
    full_layers: int
    window_layers: int = 0
    window: int = 0

    def request_bytes(self, tokens: float) -> float:
        """Return the bytes of KV of a request with so many tokens; blocks are not rounded up."""
        return self.layer_bytes * (self.full_layers * tokens + self.window_layers * min(tokens, float(self.window)))

    def per_token(self, tokens: float | None = None) -> float | None:
        """Return bytes per token of a request of `tokens` tokens; None when it depends on a length that is not known."""
        if not self.window_layers:
            return self.layer_bytes * self.full_layers
        return self.request_bytes(tokens) / tokens if tokens else None


def shape_of(facts: Mapping[str, str]) -> KvShape | None:
    """Return the shape from configuration as read, or None when it does not say enough.

    GQA and MHA: KV heads x (key + value width) x bytes. MLA: (latent rank + RoPE width) x bytes, stored once. A model
    with a sliding window whose layer kinds are not known is not guessed.

    Source: the models' own configuration files and vLLM's layouts; multi-head latent attention as in DeepSeek-V2.
    """
    width = _dtype_bytes(facts)
    layers = _int(facts, "num_hidden_layers")
    if width is None or layers is None:
        return None
    latent, rope = _int(facts, "kv_lora_rank"), _int(facts, "qk_rope_head_dim")
    if latent is not None and rope is not None:
        if facts.get("kv_cache_dtype") == "fp8_ds_mla":
            return KvShape(layer_bytes=FP8_MLA_BYTES, full_layers=layers)
        return KvShape(layer_bytes=(latent + rope) * width, full_layers=layers)
    heads, dim = _int(facts, "num_key_value_heads"), _int(facts, "head_dim")
    if heads is None or dim is None:
        return None
    layer_bytes = 2.0 * heads * dim * width
    full, windowed, window = (
        _int(facts, "full_attention_layers"),
        _int(facts, "sliding_attention_layers"),
        _int(facts, "sliding_window"),
    )
    if full is not None and windowed is not None:
        if windowed and not window:
            return None
        return KvShape(layer_bytes=layer_bytes, full_layers=full, window_layers=windowed, window=window or 0)
    if window:
        return None
    return KvShape(layer_bytes=layer_bytes, full_layers=layers)


def _dtype_bytes(facts: Mapping[str, str]) -> float | None:
    stored = facts.get("kv_cache_dtype", "auto").lower()
    if stored in ("auto", ""):
        stored = facts.get("dtype", "auto").removeprefix("torch.").lower()
    if stored in ("auto", ""):
        stored = facts.get("model_dtype", "").removeprefix("torch.").lower()
    if stored == "fp8_ds_mla":
        return 1.0
    return DTYPE_BYTES.get(stored)


def _int(facts: Mapping[str, str], name: str) -> int | None:
    text = facts.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None
