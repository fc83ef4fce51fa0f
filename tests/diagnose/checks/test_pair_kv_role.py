"""pair/kv-role: producer on prefill, consumer on decode."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, values, verdict
from tests.diagnose.pairs import judge, pair_view

ID = "pair/kv-role"


def test_a_sound_pair_is_fine() -> None:
    assert verdict(judge(ID)) == "ok"


NESTED = '[{"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both"}, {"kv_connector": "NixlConnector", "kv_role": "%s"}]'


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("kv_producer", "kv_producer", "fail"),
        ("kv_consumer", "kv_consumer", "fail"),
        ("kv_both", "kv_both", "warn"),
        ("kv_producer", None, "unknown"),
    ],
)
def test_roles(left: str, right: str | None, expected: str) -> None:
    assert verdict(judge(ID, {"kv_role": left}, {"kv_role": right})) == expected


@pytest.mark.parametrize(("role", "expected"), [("kv_consumer", "ok"), ("kv_producer", "fail"), ("kv_both", "warn")])
def test_the_child_that_hands_over_counts(role: str, expected: str) -> None:
    wrapped = {"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_children": NESTED % role}
    assert verdict(judge(ID, {}, wrapped)) == expected


def test_sglang_s_mode() -> None:
    left, right = ({"kv_role": None, "disaggregation_mode": mode} for mode in ("prefill", "prefill"))
    found = judge(ID, left, right, engine="sglang")
    assert values(found) == [("decode-0", "disaggregation_mode", "prefill")]


def test_golden() -> None:
    golden_preflight(ID, pair_view({"kv_role": "kv_both"}, {"kv_role": "kv_producer"}))
