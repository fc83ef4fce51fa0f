"""pair/failure-policy: chosen on purpose, and proved for hybrid models."""

from __future__ import annotations

import pytest

from tests.diagnose.build import canary, golden_preflight, unread, verdict
from tests.diagnose.pairs import judge, pair_view

ID = "pair/failure-policy"


def test_a_sound_pair_is_fine() -> None:
    assert verdict(judge(ID)) == "ok"


HYBRID = {"architectures": '["NemotronHForCausalLM"]'}


@pytest.mark.parametrize(
    ("policy", "expected"), [("fail", "ok"), ("recompute", "warn"), (None, "warn"), ("retry", "fail")]
)
def test_policies(policy: str | None, expected: str) -> None:
    assert verdict(judge(ID, {}, {"kv_load_failure_policy": policy})) == expected


def test_prefill_s_policy_does_not_matter() -> None:
    assert verdict(judge(ID, {"kv_load_failure_policy": "recompute"}, {})) == "ok"


def test_unread_is_unknown() -> None:
    gone = {"kv_load_failure_policy": None, "kv_connector": None}
    assert unread(judge(ID, {}, gone)) == [("decode-0", "kv_load_failure_policy")]
    bare = {"architectures": None}
    assert unread(judge(ID, bare, bare)) == [("prefill-0", "architectures"), ("decode-0", "architectures")]


@pytest.mark.parametrize(("ok", "expected"), [(True, "ok"), (False, "warn"), (None, "warn")])
def test_a_hybrid_model_wants_a_canary(ok: bool | None, expected: str) -> None:
    probes = [canary("prefill-0>decode-0", ok=ok)]
    assert verdict(judge(ID, HYBRID, HYBRID, probes=probes)) == expected
    assert verdict(judge(ID, HYBRID, HYBRID)) == "warn"


def test_only_vllm_has_a_policy() -> None:
    assert verdict(judge(ID, engine="sglang")) == "not-applicable"


def test_golden() -> None:
    golden_preflight(ID, pair_view(HYBRID, HYBRID | {"kv_load_failure_policy": "recompute"}))
