import pytest

from pdops.stats.kvsize import shape_of

GQA_8B = {
    "num_hidden_layers": "32",
    "num_key_value_heads": "8",
    "head_dim": "128",
    "kv_cache_dtype": "auto",
    "model_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (GQA_8B, 131_072),
        ({**GQA_8B, "num_key_value_heads": "32"}, 524_288),
        ({**GQA_8B, "num_hidden_layers": "28", "num_key_value_heads": "4"}, 57_344),
        ({**GQA_8B, "kv_cache_dtype": "fp8_e4m3"}, 65_536),
        ({**GQA_8B, "dtype": "float32"}, 262_144),
        (
            {"num_hidden_layers": "61", "kv_lora_rank": "512", "qk_rope_head_dim": "64", "model_dtype": "bfloat16"},
            70_272,
        ),
        (
            {
                "num_hidden_layers": "61",
                "kv_lora_rank": "512",
                "qk_rope_head_dim": "64",
                "kv_cache_dtype": "fp8_ds_mla",
            },
            61 * 656,
        ),
    ],
)
def test_bytes_per_token_follow_the_models_shape(facts: dict[str, str], expected: float) -> None:
    shape = shape_of(facts)
    assert shape is not None
    assert shape.per_token() == expected


def test_windowed_layers_stop_growing_at_the_window() -> None:
    shape = shape_of(
        {
            **GQA_8B,
            "num_hidden_layers": "62",
            "num_key_value_heads": "16",
            "sliding_window": "1024",
            "full_attention_layers": "10",
            "sliding_attention_layers": "52",
        }
    )
    assert shape is not None
    assert shape.request_bytes(512) == 62 * 8192 * 512
    assert shape.request_bytes(8192) == 81_920 * 8192 + 425_984 * 1024
    assert shape.per_token() is None
    assert shape.per_token(8192) == pytest.approx(81_920 + 425_984 / 8)


def test_linear_attention_layers_keep_no_kv_by_token() -> None:
    facts = {
        **GQA_8B,
        "num_hidden_layers": "40",
        "num_key_value_heads": "2",
        "head_dim": "256",
        "full_attention_layers": "10",
        "sliding_attention_layers": "0",
    }
    shape = shape_of(facts)
    assert shape is not None
    assert shape.per_token() == 20_480


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {k: v for k, v in GQA_8B.items() if k != "head_dim"},
        {**GQA_8B, "model_dtype": "int3"},
        {**GQA_8B, "num_hidden_layers": "-3"},
        {**GQA_8B, "num_hidden_layers": "many"},
        {**GQA_8B, "sliding_window": "4096"},
    ],
)
def test_what_is_not_known_is_not_guessed(facts: dict[str, str]) -> None:
    assert shape_of(facts) is None
