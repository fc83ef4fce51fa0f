"""decode/kv-leak: KV that stays in use while nobody is there to use it."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "decode/kv-leak"


def idle(usage: Points = (0.4, 0.7), running: Points = (8, 0), waiting: Points = (0, 0), **more: Points) -> Given:
    given = {"kv_cache_usage": usage, "running_requests": running, "queue_depth": waiting, **more}
    return but(sound(), {"decode-0": given})


def test_fires_on_kv_without_an_owner() -> None:
    found = one(ask(ID, view(series=idle())))
    assert found.cause == "kv-leak-decode"
    assert groups(found) == {"held", "idle"}


@pytest.mark.parametrize(("usage", "fires"), [(0.5, False), (0.51, True)])
def test_half_of_the_pool(usage: float, fires: bool) -> None:
    found = ask(ID, view(series=idle((0.4, usage))))
    assert bool(causes(found)) is fires
    assert bool(causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize("signal", ["running", "waiting"])
@pytest.mark.parametrize(("level", "fires"), [(0.5, True), (0.6, False)])
def test_a_request_that_runs_or_waits_owns_kv(signal: str, level: float, fires: bool) -> None:
    given = idle(running=(8, level)) if signal == "running" else idle(waiting=(0, level))
    assert bool(causes(ask(ID, view(series=given)))) is fires


@pytest.mark.parametrize("signal", ["transfer_queue_depth", "decode_prealloc_queue_depth", "kv_fetch_done_waiting"])
def test_a_transfer_on_its_way_owns_kv(signal: str) -> None:
    assert causes(ask(ID, view(series=idle(**{signal: (0, 1)})))) == []


def test_usage_that_fell_once_was_given_back() -> None:
    fell = [(-290.0, 0.7), (-150.0, 0.2), (0.0, 0.7)]
    assert causes(ask(ID, view(series=idle(fell)))) == []


def test_aborts_support_it() -> None:
    given = but(idle(), {"client": {"client_aborts": (0, 20)}})
    assert "aborts" in groups(one(ask(ID, view(series=given))))


@pytest.mark.parametrize("absent", ["running_requests", "queue_depth"])
def test_without_knowing_who_runs_it_is_unknown(absent: str) -> None:
    found = one(ask(ID, view(series=but(idle(), {"decode-0": {absent: None}}))), Status.UNKNOWN)
    assert found.missing[0].signal == absent


def test_without_usage_it_says_nothing() -> None:
    assert ask(ID, view(series=idle(None))) == ()


def test_pool_totals_are_enough() -> None:
    given = {"pool:decode": {"kv_cache_usage": (0.3, 0.8), "running_requests": (9, 0), "queue_depth": (0, 0)}}
    assert [str(s) for s in one(ask(ID, view(series=given))).scopes] == ["pool decode"]


def crowded(usage: Points = (0.6, 0.95), deferred: Points = (1, 9), **more: Points) -> Given:
    return idle(usage, waiting=deferred, queue_depth_deferred=deferred, **more)


@pytest.mark.parametrize(("usage", "fires"), [(0.9, False), (0.91, True)])
def test_in_a_full_pool_where_nothing_runs_those_that_wait_do_not_own_it(usage: float, fires: bool) -> None:
    found = ask(ID, view(series=crowded((0.6, usage))))
    assert bool(causes(found)) is fires
    if fires:
        assert groups(one(found)) == {"held", "idle", "crowded"}
        assert one(found).cap < 0.9


def test_requests_in_a_full_pool_whose_kv_does_not_arrive_are_waiting_for_it() -> None:
    assert causes(ask(ID, view(series=crowded(kv_transfer_bytes=(1e9, 0))))) == []
    assert causes(ask(ID, view(series=crowded(transfer_queue_depth=(0, 2))))) == []


def test_report() -> None:
    report = golden(ID, view(series=but(idle((0.4, 0.94)), {"client": {"client_aborts": (0, 40)}})))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("kv-leak-decode", ID)
