"""pair/block-size: blocks are cut alike, or decode can cut what it pulls."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, values, verdict
from tests.diagnose.pairs import Facts, judge, pair_view

ID = "pair/block-size"


def test_a_sound_pair_is_fine() -> None:
    assert verdict(judge(ID)) == "ok"


@pytest.mark.parametrize(
    ("prefill", "decode", "device", "expected"),
    [
        ("32", "64", "cpu", "fail"),
        ("32", "64", "cuda", "warn"),
        ("32", "48", "cuda", "fail"),
        ("64", "32", "cuda", "fail"),
        ("32", "64", None, "fail"),
        ("32", "32", "cuda", "ok"),
        ("32", None, "cuda", "unknown"),
    ],
)
def test_sizes(prefill: str, decode: str | None, device: str | None, expected: str) -> None:
    both: Facts = {"kv_buffer_device": device}
    assert verdict(judge(ID, {**both, "block_size": prefill}, {**both, "block_size": decode})) == expected


def test_sizes_that_nobody_set_are_alike_on_like_hardware() -> None:
    gone: Facts = {"block_size": None}
    assert verdict(judge(ID, gone, gone)) == "unknown"
    both: Facts = {**gone, "VLLM_TARGET_DEVICE": "cpu"}
    assert verdict(judge(ID, both, both)) == "ok"


def test_physical_blocks_of_a_hybrid_model() -> None:
    found = judge(ID, {"effective_attention_block_size": "16"}, {"effective_attention_block_size": "32"})
    assert verdict(found) == "fail"
    assert ("prefill-0", "effective_attention_block_size", "16") in values(found)


def test_sglang_pages() -> None:
    left, right = ({"block_size": None, "page_size": size} for size in ("64", "1"))
    assert verdict(judge(ID, left, right, engine="sglang")) == "fail"


def test_golden() -> None:
    found = golden_preflight(ID, pair_view({}, {"block_size": "64"}))
    assert values(found) == [("prefill-0", "block_size", "32"), ("decode-0", "block_size", "64")]
