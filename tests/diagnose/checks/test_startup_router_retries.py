"""startup/router-retries: retries within the deadline, breakers that close in time and count no 4xx."""

from __future__ import annotations

import pytest

from tests.diagnose.build import causes, golden_preflight, unread, values, verdict
from tests.diagnose.hostfacts import because, judge, seen

ID = "startup/router-retries"
Side = dict[str, str | None]
SOUND: Side = {"retries": "0", "breaker_threshold": "0", "deadline_s": "120"}


def router(**more: str | None) -> Side:
    return SOUND | more


def test_no_retries_and_no_breaker() -> None:
    assert verdict(judge(ID, router=router())) == "ok"


def test_a_retry_is_doubtful_even_in_time() -> None:
    limits: Side = {"prefill_timeout_s": "20", "first_token_timeout_s": "20", "retry_backoff_s": "0"}
    found = judge(ID, router=router(retries="1") | limits)
    assert (verdict(found), causes(found)) == ("warn", ["kv-strand-prefill"])


@pytest.mark.parametrize(
    ("retries", "backoff", "says"),
    [
        ("1", {}, "unknown"),
        ("2", {}, "fail"),
        ("1", {"retry_backoff_s": "0"}, "warn"),
        ("1", {"retry_backoff_ms": "1000"}, "fail"),
    ],
)
def test_all_tries_within_the_deadline(retries: str, backoff: Side, says: str) -> None:
    limits: Side = {"prefill_timeout_s": "40", "first_token_timeout_s": "20"}
    found = judge(ID, router=router(retries=retries) | limits | backoff)
    assert verdict(found) == says
    if says == "fail":
        assert "timeout-too-short" in causes(found)


def test_a_bound_is_not_made_from_what_was_not_read() -> None:
    found = judge(ID, router=router(retries="1", prefill_timeout_s="40", retry_backoff_s="1"))
    assert unread(found) == [("router-0", "first_token_timeout_s")]


@pytest.mark.parametrize(
    ("recovery", "counts", "says"),
    [
        ("60", "false", "ok"),
        ("119", "false", "ok"),
        ("120", "false", "fail"),
        ("60", "true", "fail"),
        ("60", None, "unknown"),
        (None, "false", "unknown"),
    ],
)
def test_the_breaker(recovery: str | None, counts: str | None, says: str) -> None:
    found = judge(ID, router=router(breaker_threshold="5", breaker_recovery_s=recovery, breaker_counts_4xx=counts))
    assert verdict(found) == says
    if says == "fail":
        assert causes(found) == ["breaker-open"]


def test_a_breaker_that_is_disabled() -> None:
    assert verdict(judge(ID, router=router(breaker_threshold=None, disable_circuit_breaker="true"))) == "ok"


def test_pdops_own_router_does_neither() -> None:
    found = judge(ID, router={}, router_engine="pdops_router")
    assert verdict(found) == "ok"
    assert "own router" in because(found)


def test_what_was_not_read_is_unknown() -> None:
    assert unread(judge(ID, router={})) == [("router-0", "retries"), ("router-0", "breaker_threshold")]
    assert ("router-0", "prefill_timeout_s") in unread(judge(ID, router=router(retries="1")))


def test_without_a_router_it_does_not_apply() -> None:
    assert verdict(judge(ID)) == "not-applicable"


def test_golden() -> None:
    facts = router(
        retries="5",
        prefill_timeout_s="60",
        deadline_s="31",
        breaker_threshold="10",
        breaker_recovery_s="60",
        breaker_counts_4xx="true",
    )
    found = golden_preflight(ID, seen(router=facts))
    assert verdict(found) == "fail"
    assert ("router-0", "breaker_recovery_s", 60.0) in values(found)
