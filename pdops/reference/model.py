"""Write a tiny Llama with random weights and a byte-level tokenizer: nothing to download, the same bytes each time.

Run by the engine's Python: `python model.py FOLDER`. One character of prompt is one token. KV takes 1,024 bytes a token:
2 layers × 2 (K and V) × 2 heads × 32 × 4 bytes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

NAME = "pdops-tiny"
SEED = 20
MAX_LENGTH = 4096
LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, HEAD = 2, 128, 256, 4, 2, 32
KV_BYTES_PER_TOKEN = LAYERS * 2 * KV_HEADS * HEAD * 4
SPECIAL = ("<s>", "</s>", "<pad>")
WEIGHT_SCALE = 0.2
"""Large enough that the next token depends on the prompt, so wrong KV shows in the text."""
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "


def write(folder: Path) -> None:
    """Write configuration, tokenizer and weights in the layout of a Hugging Face checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = _write_tokenizer(folder)
    _write_json(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": _padded(len(vocabulary)),
            "hidden_size": HIDDEN,
            "intermediate_size": INNER,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD,
            "hidden_act": "silu",
            "max_position_embeddings": MAX_LENGTH,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
            "bos_token_id": vocabulary["<s>"],
            "eos_token_id": vocabulary["</s>"],
            "pad_token_id": vocabulary["<pad>"],
        },
    )
    _write_weights(folder / "model.safetensors", _padded(len(vocabulary)))


def _padded(size: int) -> int:
    return -(-size // 8) * 8


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")


def _write_tokenizer(folder: Path) -> dict[str, int]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # type: ignore[import-not-found]

    symbols = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *SPECIAL]
    vocabulary = {symbol: number for number, symbol in enumerate(symbols)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIAL[0],
            "eos_token": SPECIAL[1],
            "pad_token": SPECIAL[2],
            "model_max_length": MAX_LENGTH,
            "chat_template": TEMPLATE,
        },
    )
    return vocabulary


def _write_weights(path: Path, vocabulary: int) -> None:
    import torch  # type: ignore[import-not-found]
    from safetensors.torch import save_file  # type: ignore[import-not-found]

    generator = torch.Generator().manual_seed(SEED)
    shapes = {"model.embed_tokens": (vocabulary, HIDDEN), "lm_head": (vocabulary, HIDDEN), "model.norm": (HIDDEN,)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        shapes |= {
            f"{at}.input_layernorm": (HIDDEN,),
            f"{at}.post_attention_layernorm": (HIDDEN,),
            f"{at}.self_attn.q_proj": (HEADS * HEAD, HIDDEN),
            f"{at}.self_attn.k_proj": (KV_HEADS * HEAD, HIDDEN),
            f"{at}.self_attn.v_proj": (KV_HEADS * HEAD, HIDDEN),
            f"{at}.self_attn.o_proj": (HIDDEN, HEADS * HEAD),
            f"{at}.mlp.gate_proj": (INNER, HIDDEN),
            f"{at}.mlp.up_proj": (INNER, HIDDEN),
            f"{at}.mlp.down_proj": (HIDDEN, INNER),
        }
    weights = {
        f"{name}.weight": torch.ones(shape)
        if len(shape) == 1
        else WEIGHT_SCALE * torch.randn(shape, generator=generator)
        for name, shape in shapes.items()
    }
    save_file(weights, str(path), metadata={"format": "pt"})


if __name__ == "__main__":
    write(Path(sys.argv[1]))
