"""kvstore/hits-fail: lookups that hit and reads that fail, where reads come from a store alone."""

from __future__ import annotations

import pytest

from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "kvstore/hits-fail"
STORE = {"prefill-0": {"kv_connector": "MooncakeStoreConnector"}}
BOTH = {
    "prefill-0": {
        "kv_connector": "MultiConnector",
        "kv_connector_children": '[{"kv_connector": "NixlConnector"}, {"kv_connector": "MooncakeStoreConnector"}]',
    }
}


def reads(hits: float = 60_000, failed: Points = (0, 40), deferred: Points = (0, 5)) -> Given:
    given: dict[str, Points] = {
        "external_cache_queries": (200_000, 100_000),
        "external_cache_hits": (120_000, hits),
        "kv_transfer_failures": failed,
        "queue_depth_deferred": deferred,
    }
    return but(sound(), {"prefill-0": given})


def test_hits_whose_reads_fail() -> None:
    found = one(ask(ID, view(series=reads(), facts=STORE)))
    assert found.cause == "kvstore-metadata-stale"
    assert groups(found) == {"hits", "failures", "waits"}


@pytest.mark.parametrize(("hits", "fires"), [(10_000, False), (10_001, True)])
def test_lookups_still_hit(hits: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=reads(hits), facts=STORE)))) is fires


def test_reads_that_succeed_are_well() -> None:
    assert ask(ID, view(series=reads(failed=(0, 0)), facts=STORE)) == ()


@pytest.mark.parametrize(("deferred", "fires"), [(1.0, False), (1.1, True)])
def test_reads_nobody_counts_may_fail_when_requests_wait(deferred: float, fires: bool) -> None:
    found = ask(ID, view(series=reads(failed=None, deferred=(0, deferred)), facts=STORE))
    assert bool(causes(found)) is fires
    if fires:
        assert one(found).cap < 0.5
        assert [m.signal for m in one(found).missing] == ["kv_transfer_failures"]


@pytest.mark.parametrize("facts", [None, BOTH, {"prefill-0": {"kv_connector": "NixlConnector"}}])
def test_where_a_peer_is_read_as_well_failures_may_be_the_peers(facts: dict[str, dict[str, str]] | None) -> None:
    assert ask(ID, view(series=reads(), facts=facts)) == ()


def test_report() -> None:
    report = golden(ID, view(series=but(reads(), {"client": {"ttft_seconds.p95": (0.4, 8.0)}}), facts=STORE))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert report.top.cause == "kvstore-metadata-stale"
    assert "transport-error" in {r.cause for r in report.ruled_out}
