"""pair/kv-layout: heads and tokens lie alike, or decode permutes."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, verdict
from tests.diagnose.pairs import judge, pair_view

ID = "pair/kv-layout"


def test_a_sound_pair_is_fine() -> None:
    assert verdict(judge(ID)) == "ok"


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("HND", "NHD", "fail"),
        ("HND", "LBHNC", "ok"),
        ("LBNHC", "NHD", "ok"),
        ("HND", None, "unknown"),
        (None, None, "ok"),
    ],
)
def test_layouts(left: str | None, right: str | None, expected: str) -> None:
    assert verdict(judge(ID, {"kv_cache_layout": left}, {"kv_cache_layout": right})) == expected


@pytest.mark.parametrize(
    ("left", "right", "side", "expected"),
    [("HND", "NHD", "right", "warn"), ("HND", "NHD", "left", "fail"), ("NHD", "HND", "right", "fail")],
)
def test_decode_may_permute_heads_first(left: str, right: str, side: str, expected: str) -> None:
    flag = {"enable_permute_local_kv": "true"}
    a = {"kv_cache_layout": left} | (flag if side == "left" else {})
    b = {"kv_cache_layout": right} | (flag if side == "right" else {})
    assert verdict(judge(ID, a, b)) == expected


def test_the_environment_names_it_too() -> None:
    left = {"kv_cache_layout": None, "VLLM_KV_CACHE_LAYOUT": "NHD"}
    assert verdict(judge(ID, left, {})) == "fail"


def test_latent_attention_has_one_layout() -> None:
    both = {"architectures": "DeepseekV3ForCausalLM"}
    assert verdict(judge(ID, both, both | {"kv_cache_layout": "NHD"})) == "not-applicable"


def test_golden() -> None:
    golden_preflight(ID, pair_view({}, {"kv_cache_layout": "NHD"}))
