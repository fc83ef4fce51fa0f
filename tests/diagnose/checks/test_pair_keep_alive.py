"""pair/keep-alive: servers keep connections longer than the router reuses them."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, unread, values, verdict
from tests.diagnose.pairs import Facts, judge, pair_view

ID = "pair/keep-alive"


def test_a_sound_pair_is_fine() -> None:
    assert verdict(judge(ID)) == "ok"


@pytest.mark.parametrize(
    ("server", "idle", "expected"),
    [
        ("61", "60", "ok"),
        ("60", "60", "fail"),
        (None, "4.9", "ok"),
        (None, "5", "fail"),
        (None, "0", "ok"),
        ("?", "9", "unknown"),
    ],
)
def test_bounds(server: str | None, idle: str, expected: str) -> None:
    both: Facts = {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": server}
    if server == "?":
        both = {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": None, "kv_connector": None}
    assert verdict(judge(ID, both, both, router={"keepalive_s": idle})) == expected


def test_both_values_stand_side_by_side() -> None:
    found = judge(ID, {}, {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "5"})
    assert values(found) == [("router-0", "keepalive_s", 60.0), ("decode-0", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE", 5.0)]


def test_a_router_that_does_not_tell_is_named() -> None:
    assert unread(judge(ID, router={"keepalive_s": None})) == [("router-0", "keepalive_s")]
    assert verdict(judge(ID, workers=("prefill-0", "decode-0"))) == "not-applicable"


def test_golden() -> None:
    golden_preflight(ID, pair_view({}, {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "5"}))
