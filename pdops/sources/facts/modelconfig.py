"""Read a model's own configuration, where its checkpoint lies on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NUMBERS = (
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_size",
    "max_position_embeddings",
    "sliding_window",
    "kv_lora_rank",
    "qk_rope_head_dim",
)
_MAX_BYTES = 4 << 20
_WEIGHTS = ("*.safetensors", "*.bin")


def model_facts(config: Mapping[str, Any]) -> dict[str, str]:
    """Return what matters for KV of a `config.json`; a multimodal one has it under `text_config`.

    `num_key_value_heads` and `head_dim` are derived as transformers derives them where the file leaves them out.
    """
    inner = config.get("text_config")
    text = {**config, **inner} if isinstance(inner, dict) else dict(config)
    facts = {name: str(text[name]) for name in _NUMBERS if isinstance(text.get(name), int)}
    heads, hidden = text.get("num_attention_heads"), text.get("hidden_size")
    if isinstance(heads, int) and heads > 0:
        facts.setdefault("num_key_value_heads", str(heads))
        if isinstance(hidden, int):
            facts.setdefault("head_dim", str(hidden // heads))
    kinds = text.get("layer_types")
    if isinstance(kinds, list):
        facts["full_attention_layers"] = str(kinds.count("full_attention"))
        facts["sliding_attention_layers"] = str(kinds.count("sliding_attention"))
    dtype = text.get("dtype", text.get("torch_dtype"))
    if isinstance(dtype, str):
        facts["model_dtype"] = dtype
    if isinstance(text.get("architectures"), list):
        facts["architectures"] = json.dumps(config["architectures"])
    quantised = text.get("quantization_config")
    if isinstance(quantised, dict) and isinstance(quantised.get("quant_method"), str):
        facts["quantization"] = quantised["quant_method"]
    return facts


def find_checkpoint(model: str, environ: Mapping[str, str], revision: str = "main") -> Path | None:
    """Return the folder of a model: itself, or its snapshot in the Hugging Face cache; None when it is not here."""
    if os.path.isabs(model):
        folder = Path(model)
        return folder if (folder / "config.json").is_file() else None
    home = Path(environ.get("HF_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".cache" / "huggingface")
    hub = Path(environ.get("HF_HUB_CACHE") or home / "hub")
    store = hub / f"models--{model.replace('/', '--')}"
    try:
        name = (store / "refs" / revision).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        name = revision
    folder = store / "snapshots" / name
    return folder if name.isalnum() and (folder / "config.json").is_file() else None


def read_checkpoint(folder: Path) -> dict[str, str]:
    """Return the facts of a checkpoint folder; its revision too when it is a snapshot of the Hugging Face cache.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not JSON, or no object.
    """
    with open(folder / "config.json", "rb") as file:
        config = json.loads(file.read(_MAX_BYTES))
    if not isinstance(config, dict):
        raise ValueError("config.json holds no object")
    facts = model_facts(config)
    if folder.parent.name == "snapshots":
        facts["model_revision"] = folder.name
    weights = sum(file.stat().st_size for kind in _WEIGHTS for file in folder.glob(kind))
    if weights:
        facts["model_bytes"] = str(weights)
    return facts
