"""pair/timeouts: outer above inner, above the promise, and leases that are renewed in time."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, outcomes, unread, verdict
from tests.diagnose.pairs import judge, pair_view

ID = "pair/timeouts"


def test_a_sound_pair_is_fine() -> None:
    assert verdict(judge(ID)) == "ok"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("deadline_s", "30", "ok"),
        ("deadline_s", "29.9", "warn"),
        ("prefill_timeout_s", "60", "ok"),
        ("prefill_timeout_s", "60.1", "warn"),
        ("deadline_s", "0", "ok"),
        ("deadline_s", "None", "ok"),
        ("first_token_timeout_s", "0", "ok"),
        ("first_token_timeout_s", "60.1", "warn"),
        ("first_token_timeout_s", "1", "fail"),
        ("prefill_timeout_s", "1", "fail"),
        ("prefill_timeout_s", "1.1", "ok"),
        ("client_timeout_s", "59", "warn"),
        ("client_timeout_s", "60", "ok"),
        ("deadline_s", None, "unknown"),
        ("deadline_s", "soon", "unknown"),
    ],
)
def test_the_router_s_order(name: str, value: str | None, expected: str) -> None:
    assert verdict(judge(ID, router={name: value})) == expected


@pytest.mark.parametrize(
    ("prefill", "decode", "expected"),
    [
        ("30", None, "ok"),
        ("6", "6", "ok"),
        ("5", "5", "fail"),
        ("30", "60", "warn"),
        ("30", "119", "warn"),
        ("30", "120", "fail"),
        ("120", "30", "warn"),
        ("30", "?", "unknown"),
    ],
)
def test_leases(prefill: str, decode: str | None, expected: str) -> None:
    assert verdict(judge(ID, {"kv_lease_duration": prefill}, {"kv_lease_duration": decode})) == expected


def test_unread_options_leave_the_lease_unknown() -> None:
    assert ("decode-0", "kv_lease_duration") in unread(judge(ID, {}, {"kv_connector": None}))


@pytest.mark.parametrize(("allowed", "expected"), [("299", "ok"), ("300", "fail")])
def test_sglang_s_wait_for_kv(allowed: str, expected: str) -> None:
    both = {"kv_connector": "mooncake"}
    router = {"prefill_timeout_s": allowed, "first_token_timeout_s": "300", "deadline_s": "600"}
    assert verdict(judge(ID, both, both, router=router, engine="sglang")) == expected


def test_without_a_router_only_leases_are_judged() -> None:
    assert outcomes(judge(ID, workers=("prefill-0", "decode-0"))) == ["not-applicable", "ok"]


def test_golden() -> None:
    golden_preflight(ID, pair_view({}, {"kv_lease_duration": "120"}, router={"prefill_timeout_s": "90"}))
