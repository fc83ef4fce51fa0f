"""pair/attention: backend, hybrid manager and speculation are alike."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, unread, verdict
from tests.diagnose.pairs import Facts, judge, pair_view

ID = "pair/attention"


def test_a_sound_pair_is_fine() -> None:
    assert verdict(judge(ID)) == "ok"


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ({}, {"attention_backend": "FLASHINFER"}, "fail"),
        ({}, {"attention_backend": "flash_attn"}, "ok"),
        ({}, {"attention_backend": None}, "unknown"),
        ({"attention_backend": None}, {"attention_backend": None}, "unknown"),
        ({"attention_backend": None, "device": "cpu"}, {"attention_backend": None, "host.gpus": "[]"}, "ok"),
        ({"disable_hybrid_kv_cache_manager": "true"}, {"disable_hybrid_kv_cache_manager": "false"}, "fail"),
        ({}, {"speculative_config": '{"method": "eagle3"}'}, "fail"),
        ({"speculative_config": "None"}, {}, "ok"),
        ({"kv_connector": None, "attention_backend": None}, {}, "unknown"),
    ],
)
def test_what_is_on_each_side(left: Facts, right: Facts, expected: str) -> None:
    assert verdict(judge(ID, left, right)) == expected


@pytest.mark.parametrize(("other", "expected"), [("H200", "ok"), ("A100", "unknown")])
def test_unlike_gpus_may_choose_another_backend(other: str, expected: str) -> None:
    left, right = (
        {"attention_backend": None, "host.gpus": f'[{{"index": 0, "name": "{name}"}}]'} for name in ("H200", other)
    )
    found = judge(ID, left, right)
    assert verdict(found) == expected
    assert bool(unread(found)) is (expected == "unknown")


def test_golden() -> None:
    golden_preflight(ID, pair_view({}, {"attention_backend": "FLASHINFER"}))
