"""pair/model: the same weights and tokenizer, with the revision pinned."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, unread, values, verdict
from tests.diagnose.pairs import judge, pair_view

ID = "pair/model"


def test_a_sound_pair_is_fine() -> None:
    assert verdict(judge(ID)) == "ok"


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [
        ("model", "org/model", "org/other"),
        ("model_revision", "0123abc", "4567def"),
        ("tokenizer", None, "org/other"),
        ("quantization", None, "awq"),
        ("quantization", "fp8", "awq"),
        ("num_key_value_heads", "4", "8"),
        ("architectures", "LlamaForCausalLM", "Qwen3ForCausalLM"),
    ],
)
def test_a_difference_has_to_be_fixed(name: str, left: str | None, right: str | None) -> None:
    found = judge(ID, {name: left}, {name: right})
    assert verdict(found) == "fail"
    assert {scope for scope, _, _ in values(found)} == {"prefill-0", "decode-0"}


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [("tokenizer", None, "org/model"), ("quantization", None, "None"), ("head_dim", None, "64")],
)
def test_a_default_written_out_is_no_difference(name: str, left: str | None, right: str | None) -> None:
    assert verdict(judge(ID, {name: left}, {name: right})) == "ok"


def test_another_revision_is_version_skew() -> None:
    found = judge(ID, {"model_revision": "0123abc"}, {"model_revision": "4567def"})
    assert [f.cause for f in found if f.for_] == ["version-skew"]


def test_a_hub_model_without_a_pin_is_a_warning_and_a_path_has_no_revision() -> None:
    bare = {"model_revision": None}
    assert verdict(judge(ID, bare, bare)) == "warn"
    local = bare | {"model": "/models/m"}
    assert verdict(judge(ID, local, local)) == "ok"


def test_the_resolved_revision_counts() -> None:
    left = {"revision": "main"}
    assert verdict(judge(ID, left, {"revision": "v1"})) == "ok"


def test_a_pin_on_one_side_only_is_unclear() -> None:
    found = judge(ID, {"model_revision": None}, {})
    assert verdict(found) == "unknown"
    assert unread(found) == [("prefill-0", "revision")]


def test_what_is_missing_is_named() -> None:
    gone = {"model": None, "kv_connector": None, "model_revision": None}
    found = judge(ID, gone, gone)
    assert verdict(found) == "unknown"
    assert {("prefill-0", "model"), ("decode-0", "model"), ("decode-0", "revision")} <= set(unread(found))


def test_golden() -> None:
    found = golden_preflight(ID, pair_view({}, {"model": "org/other", "model_revision": "4567def"}))
    assert ("prefill-0", "model", "org/model") in values(found)
    assert ("decode-0", "model", "org/other") in values(found)
