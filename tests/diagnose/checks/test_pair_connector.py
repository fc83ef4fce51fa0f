"""pair/connector: connector, direction, nesting, arrangement of layers."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, values, verdict
from tests.diagnose.pairs import Facts, judge, pair_view

ID = "pair/connector"


def test_a_sound_pair_is_fine() -> None:
    assert verdict(judge(ID)) == "ok"


NESTED = {
    "kv_connector": "MultiConnector",
    "kv_connector_children": '[{"kv_connector": "NixlConnector"}, {"kv_connector": "MooncakeStoreConnector"}]',
}


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ({}, {"kv_connector": "NixlPullConnector"}, "warn"),
        ({}, {"kv_connector": "NixlPushConnector"}, "fail"),
        ({}, {"kv_connector": "MooncakeConnector"}, "fail"),
        (NESTED, NESTED, "ok"),
        (NESTED, {}, "warn"),
        (NESTED, {"kv_connector": "NixlPushConnector"}, "fail"),
        ({"kv_connector": "MooncakeConnector"}, {"kv_connector": "MooncakeConnector"}, "ok"),
        ({"enable_cross_layers_blocks": "true"}, {"enable_cross_layers_blocks": "false"}, "fail"),
        ({"enable_cross_layers_blocks": "true"}, {}, "unknown"),
        ({}, {"kv_connector": None}, "unknown"),
    ],
)
def test_what_is_on_each_side(left: Facts, right: Facts, expected: str) -> None:
    assert verdict(judge(ID, left, right)) == expected


def test_children_given_as_names() -> None:
    names = NESTED | {"kv_connector_children": '["NixlConnector", "MooncakeStoreConnector"]'}
    assert verdict(judge(ID, NESTED, names)) == "ok"


def test_sglang_s_backend_is_its_connector() -> None:
    left, right = ({"kv_connector": None, "disaggregation_transfer_backend": b} for b in ("mooncake", "nixl"))
    found = judge(ID, left, right, engine="sglang")
    assert verdict(found) == "fail"
    assert ("decode-0", "kv_connector", "nixl") in values(found)


def test_golden() -> None:
    golden_preflight(ID, pair_view({}, {"kv_connector": "NixlPushConnector", "enable_cross_layers_blocks": "true"}))
