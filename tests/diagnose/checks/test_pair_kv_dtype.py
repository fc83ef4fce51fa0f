"""pair/kv-dtype: KV is read as it was written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.diagnose.build import ask, golden_preflight, values, verdict
from tests.diagnose.pairs import Facts, judge, pair_view

ID = "pair/kv-dtype"


def test_a_sound_pair_is_fine() -> None:
    assert verdict(judge(ID)) == "ok"


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ({"kv_cache_dtype": "auto"}, {"kv_cache_dtype": "fp8"}, "fail"),
        ({"kv_cache_dtype": "bfloat16"}, {"kv_cache_dtype": "fp8_e5m2"}, "fail"),
        ({"dtype": "bfloat16"}, {"dtype": "float16"}, "fail"),
        ({"dtype": "torch.bfloat16"}, {"dtype": "bf16"}, "ok"),
        ({"kv_cache_dtype": "auto"}, {"kv_cache_dtype": "bfloat16"}, "warn"),
        ({"kv_cache_dtype": None}, {"kv_cache_dtype": "auto"}, "ok"),
        ({"kv_cache_dtype": None, "kv_connector": None}, {}, "unknown"),
        ({"dtype": "auto"}, {"dtype": "auto"}, "ok"),
        ({"dtype": "auto"}, {"dtype": "bfloat16"}, "unknown"),
        ({"dtype": "auto", "model_dtype": "bfloat16"}, {"dtype": "bfloat16"}, "ok"),
        ({"dtype": "auto", "model_dtype": "float32"}, {"dtype": "bfloat16"}, "unknown"),
        ({"kv_cache_dtype": "auto", "cache_dtype": "fp8"}, {"kv_cache_dtype": "fp8"}, "ok"),
    ],
)
def test_what_is_on_each_side(left: Facts, right: Facts, expected: str) -> None:
    assert verdict(judge(ID, left, right)) == expected


def test_one_odd_worker_is_named() -> None:
    seen = pair_view(workers=("prefill-0", "prefill-1", "decode-0", "decode-1"))
    facts = {name: dict(known) for name, known in seen.facts.items()}
    facts["decode-1"]["kv_cache_dtype"] = "fp8"
    (found,) = [f for f in ask(ID, replace(seen, facts=facts)) if f.for_]
    assert [str(s) for s in found.scopes] == ["decode-1"]
    assert {s for s, _, v in values([found]) if v == "fp8"} == {"decode-1"}


def test_golden() -> None:
    golden_preflight(ID, pair_view({}, {"kv_cache_dtype": "fp8"}))
