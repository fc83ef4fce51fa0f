"""pair/lengths: limits and pools fit from router to decode."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, verdict
from tests.diagnose.pairs import Facts, judge, pair_view

ID = "pair/lengths"


def test_a_sound_pair_is_fine() -> None:
    assert verdict(judge(ID)) == "ok"


@pytest.mark.parametrize(
    ("left", "right", "router", "expected"),
    [
        ({}, {"max_model_len": "1023"}, {"max_model_len": "1023"}, "fail"),
        ({}, {"max_model_len": "2048"}, {}, "ok"),
        ({}, {}, {"max_model_len": "1025"}, "warn"),
        ({}, {}, {"max_model_len": None}, "unknown"),
        ({}, {"kv_cache_size_tokens": "1023"}, {}, "fail"),
        ({}, {"kv_cache_size_tokens": "1024"}, {}, "ok"),
        ({}, {"kv_cache_size_tokens": None, "num_gpu_blocks": "31"}, {}, "fail"),
        ({}, {"kv_cache_size_tokens": None, "num_gpu_blocks": "32"}, {}, "ok"),
        ({}, {"kv_cache_size_tokens": None}, {}, "unknown"),
        ({"max_model_len": None}, {}, {}, "unknown"),
    ],
)
def test_bounds(left: Facts, right: Facts, router: Facts, expected: str) -> None:
    assert verdict(judge(ID, left, right, router=router)) == expected


def test_no_router_no_cap() -> None:
    assert verdict(judge(ID, workers=("prefill-0", "decode-0"))) == "ok"


def test_golden() -> None:
    golden_preflight(ID, pair_view({"max_model_len": "2048"}, {"kv_cache_size_tokens": "1536"}))
