"""pair/parallelism: sizes that fit each other."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, unread, verdict
from tests.diagnose.pairs import Facts, judge, pair_view

ID = "pair/parallelism"


def test_a_sound_pair_is_fine() -> None:
    assert verdict(judge(ID)) == "ok"


@pytest.mark.parametrize(
    ("prefill", "decode", "heads", "expected"),
    [
        ("2", "4", "4", "ok"),
        ("4", "2", "4", "ok"),
        ("4", "2", "2", "fail"),
        ("2", "4", "2", "warn"),
        ("4", "4", "2", "ok"),
        ("4", "6", "8", "fail"),
        ("2", "4", None, "unknown"),
        (None, "1", "4", "ok"),
    ],
)
def test_tensor_parallelism(prefill: str | None, decode: str, heads: str | None, expected: str) -> None:
    both: Facts = {"num_key_value_heads": heads}
    left, right = {**both, "tensor_parallel_size": prefill}, {**both, "tensor_parallel_size": decode}
    assert verdict(judge(ID, left, right)) == expected


def test_latent_attention_has_no_heads_to_share_out() -> None:
    both = {"architectures": "DeepseekV3ForCausalLM", "num_key_value_heads": "1"}
    found = judge(ID, both | {"tensor_parallel_size": "4"}, both | {"tensor_parallel_size": "2"})
    assert verdict(found) == "ok"


def test_unlike_sizes_without_nixl_are_a_warning() -> None:
    both = {"kv_connector": "MooncakeConnector"}
    assert verdict(judge(ID, both | {"tensor_parallel_size": "2"}, both)) == "warn"


@pytest.mark.parametrize(
    ("connector", "prefill", "decode", "expected"),
    [
        ("NixlConnector", "1", "2", "fail"),
        ("NixlConnector", "2", "1", "fail"),
        ("NixlPushConnector", "2", "1", "ok"),
        ("NixlPushConnector", "2", "2", "fail"),
        ("MooncakeConnector", "2", "2", "ok"),
    ],
)
def test_pipeline_parallelism(connector: str, prefill: str, decode: str, expected: str) -> None:
    both = {"kv_connector": connector}
    left, right = both | {"pipeline_parallel_size": prefill}, both | {"pipeline_parallel_size": decode}
    assert verdict(judge(ID, left, right)) == expected


@pytest.mark.parametrize(("prefill", "decode", "expected"), [("2", "4", "ok"), ("2", "3", "fail"), ("4", "2", "ok")])
def test_context_parallelism(prefill: str, decode: str, expected: str) -> None:
    found = judge(ID, {"decode_context_parallel_size": prefill}, {"decode_context_parallel_size": decode})
    assert verdict(found) == expected


def test_unread_options_are_named() -> None:
    gone = {"kv_connector": None, "tensor_parallel_size": None}
    found = judge(ID, gone, {})
    assert verdict(found) == "unknown"
    assert ("prefill-0", "tensor_parallel_size") in unread(found)
    assert ("prefill-0", "pipeline_parallel_size") in unread(found)


def test_golden() -> None:
    both = {"num_key_value_heads": "2"}
    golden_preflight(ID, pair_view(both | {"tensor_parallel_size": "4"}, both | {"tensor_parallel_size": "2"}))
