"""client/abort-storm: given-up requests, the timeout behind them, and the KV they leave."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Layer, Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "client/abort-storm"
WORKERS = ("prefill-0", "decode-0", "router-0")
ROUTER = {"router-0": {"request_timeout_s": "10"}}


def given_up(timeouts: Points = (0, 60), more: Given | None = None) -> Given:
    return but(but(sound(), {"client": {"request_timeouts": timeouts}}), more or {})


@pytest.mark.parametrize(("timeouts", "fires"), [(6, False), (7, True)])
def test_one_in_a_hundred(timeouts: float, fires: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=given_up((0, timeouts))))
    assert causes(found) == (["timeout-too-short"] if fires else [])
    assert bool(causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize(("before", "fires"), [(60, False), (59, True)])
def test_twice_as_many_as_before(before: float, fires: bool) -> None:
    """The base window is twice as long, so 60 in it are half as many a second as 60 now."""
    assert bool(causes(ask(ID, view(workers=WORKERS, series=given_up((before, 60)))))) is fires


def test_aborts_count_as_well() -> None:
    more = {"client": {"request_timeouts": None, "client_aborts": (0, 60)}}
    assert causes(ask(ID, view(workers=WORKERS, series=given_up(more=more)))) == ["timeout-too-short"]


def test_without_the_timeout_it_is_only_a_hint() -> None:
    found = ask(ID, view(workers=WORKERS, series=given_up()))
    assert one(found, Status.UNKNOWN).missing[0].signal == "request_timeout"
    assert groups(one(found)) == {"given-up"}


@pytest.mark.parametrize(("p99", "over"), [(8.0, False), (8.1, True)])
def test_prefill_that_takes_as_long_as_the_router_waits(p99: float, over: bool) -> None:
    more = {"prefill-0": {"ttft_seconds.p99": p99}}
    found = one(ask(ID, view(workers=WORKERS, series=given_up(more=more), facts=ROUTER)))
    assert ("limit" in groups(found)) is over


def test_work_that_fits_the_timeout_twice_speaks_against_it() -> None:
    more = {"prefill-0": {"ttft_seconds.p99": 4.9}}
    found = one(ask(ID, view(workers=WORKERS, series=given_up(more=more), facts=ROUTER)))
    assert [w.group for w in found.against] == ["limit"]


@pytest.mark.parametrize(("p99", "late"), [(48.0, False), (48.1, True)])
def test_a_transfer_deadline_below_what_transfers_take(p99: float, late: bool) -> None:
    more = {"decode-0": {"kv_transfer_seconds.p99": p99, "kv_transfer_failures": (0, 9)}}
    facts = {"prefill-0": {"kv_transfer_timeout_ms": "60000"}}
    found = ask(ID, view(workers=WORKERS, series=given_up((0, 0), more), facts=facts))
    assert bool(causes(found)) is late


def test_a_deadline_that_nothing_fails_for_is_fine() -> None:
    more = {"decode-0": {"kv_transfer_seconds.p99": 59.0}}
    facts = {"prefill-0": {"kv_transfer_timeout_ms": "60000"}}
    assert causes(ask(ID, view(workers=WORKERS, series=given_up((0, 0), more), facts=facts))) == []


@pytest.mark.parametrize(("kv", "held"), [(0.85, False), (0.86, True)])
def test_kv_that_stays_behind(kv: float, held: bool) -> None:
    more = {"prefill-0": {"kv_cache_usage": (0.3, kv), "gpu_util": 0.1}}
    found = ask(ID, view(workers=WORKERS, series=given_up(more=more)))
    assert ("kv-strand-prefill" in causes(found)) is held
    if held:
        strand = one(found, cause="kv-strand-prefill")
        assert (strand.layer, groups(strand)) == (Layer.TRANSFER, {"given-up", "held", "idle"})


@pytest.mark.parametrize("signal", ["queue_depth_deferred", "queue_depth_capacity"])
def test_decode_that_is_behind_makes_it_an_effect(signal: str) -> None:
    more = {"prefill-0": {"kv_cache_usage": 0.95}, "decode-0": {signal: 9.0}}
    found = ask(ID, view(workers=WORKERS, series=given_up(more=more)))
    assert all([w.group for w in f.against] == ["behind"] for f in found if f.status is Status.FIRED)


def test_without_the_counters_it_says_nothing() -> None:
    assert ask(ID, view(workers=WORKERS, series=given_up(None))) == ()


def test_report() -> None:
    more = {
        "client": {"ttft_seconds.p95": (0.4, 9.0)},
        "prefill-0": {"ttft_seconds.p99": (2.0, 9.9), "queue_depth": (0.2, 4.0)},
    }
    report = golden(ID, view(workers=WORKERS, series=given_up((0, 120), more), facts=ROUTER))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("timeout-too-short", ID)
    assert "shorten-timeout" in [d.action for d in report.top.do_not]


@pytest.mark.parametrize(("limit", "over"), [("60", False), ("2", True)])
def test_a_first_token_limit_that_the_transfer_does_not_fit_in(limit: str, over: bool) -> None:
    given = but(sound(), {"client": {"request_timeouts": (0, 60)}, "decode-0": {"kv_transfer_seconds.p99": (0.5, 1.9)}})
    facts = {"router-0": {"first_token_timeout_s": limit}}
    found = one(ask(ID, view(workers=("prefill-0", "decode-0", "router-0"), series=given, facts=facts)))
    assert ("deadline" in groups(found)) is over
