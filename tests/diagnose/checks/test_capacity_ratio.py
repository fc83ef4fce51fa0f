"""capacity/ratio: one pool short, the other idle, and the path between them clean."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.frame import Event, EventKind
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "capacity/ratio"


def prefill_short(queue: Points = (0.2, 9.0), kv: Points = 0.15, more: Given | None = None) -> Given:
    given = {"prefill-0": {"queue_depth": queue}, "decode-0": {"kv_cache_usage": kv, "running_requests": 2.0}}
    return but(but(sound(), given), more or {})


def decode_short(waiting: Points = (0, 4.0), running: Points = 0.1, more: Given | None = None) -> Given:
    given = {
        "decode-0": {"queue_depth_capacity": waiting, "kv_cache_usage": (0.5, 0.85)},
        "prefill-0": {"running_requests": running, "queue_depth": 0.0},
    }
    return but(but(sound(), given), more or {})


@pytest.mark.parametrize(("queue", "fires"), [(2.0, False), (2.1, True)])
def test_prefill_short_and_decode_idle(queue: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=prefill_short((0.2, queue)))))) is fires


@pytest.mark.parametrize(("kv", "fires"), [(0.29, True), (0.3, False)])
def test_decode_idles_below_thirty_per_cent(kv: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=prefill_short(kv=kv))))) is fires


@pytest.mark.parametrize(("waiting", "fires"), [(1.0, False), (1.1, True)])
def test_decode_short_and_prefill_idle(waiting: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=decode_short((0, waiting)))))) is fires


@pytest.mark.parametrize(("running", "fires"), [(0.29, True), (0.3, False)])
def test_prefill_idles_below_three_tenths_of_a_request(running: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=decode_short(running=running))))) is fires


@pytest.mark.parametrize(("kv", "short"), [(0.7, False), (0.71, True)])
def test_less_than_thirty_per_cent_headroom_supports_it(kv: float, short: bool) -> None:
    given = decode_short(more={"decode-0": {"kv_cache_usage": kv}})
    assert ("headroom" in groups(one(ask(ID, view(series=given))))) is short


@pytest.mark.parametrize(
    "blocked",
    [
        {"prefill-0": {"kv_cache_usage": 0.9}},
        {"prefill-0": {"kv_transfer_expired": (0, 3)}},
        {"decode-0": {"kv_transfer_failures": (0, 3)}},
        {"decode-0": {"queue_depth_deferred": 5.0}},
    ],
)
def test_a_path_that_is_not_clean_comes_first(blocked: Given) -> None:
    found = ask(ID, view(series=prefill_short(more=blocked)))
    assert (causes(found), causes(found, Status.CLEAR)) == ([], ["ratio-wrong"])


def test_a_burst_is_no_wrong_ratio() -> None:
    burst = {"client": {"request_success": (1200, 1000)}, "prefill-0": {"prompt_tokens": (240_000, 200_000)}}
    found = one(ask(ID, view(series=prefill_short(more=burst))))
    assert [w.group for w in found.against] == ["arrivals"]


def test_falling_goodput_supports_it() -> None:
    falls = {"client": {"request_success": (1200, 400)}}
    assert "goodput" in groups(one(ask(ID, view(series=decode_short(more=falls)))))


def test_two_idle_or_two_busy_pools_have_the_right_ratio() -> None:
    assert ask(ID, view(series=sound())) == ()
    assert causes(ask(ID, view(series=prefill_short(kv=0.8)))) == []


def test_whether_the_other_pool_idles_may_not_be_known() -> None:
    found = one(ask(ID, view(series=prefill_short(kv=None))), Status.UNKNOWN)
    assert found.missing[0].signal == "kv_cache_usage"
    found = one(ask(ID, view(series=decode_short(running=None))), Status.UNKNOWN)
    assert found.missing[0].signal == "running_requests"


def test_pool_totals_count_by_worker() -> None:
    workers = ("prefill-0", "prefill-1", "decode-0")
    for queue, fires in ((4.0, False), (4.1, True)):
        given = {
            "pool:prefill": {"queue_depth": queue},
            "pool:decode": {"kv_cache_usage": 0.1, "queue_depth_capacity": 0},
        }
        assert bool(causes(ask(ID, view(workers=workers, series=given)))) is fires


def test_report() -> None:
    falls = {"client": {"request_success": (1200, 400)}}
    report = golden(ID, view(series=decode_short(more=falls)))
    assert report.verdict is Verdict.OVERLOAD
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("ratio-wrong", ID)
    assert "scale-out-prefill" in [d.action for d in report.top.do_not]


@pytest.mark.parametrize(
    ("gone", "pool", "fires"),
    [("prefill-1", None, True), ("prefill-1", "prefill", True), ("decode-1", "decode", False), (None, None, False)],
)
def test_a_pool_that_gave_workers_is_short_beside_one_that_is_busy(
    gone: str | None, pool: str | None, fires: bool
) -> None:
    events = [Event(t_s=-60.0, kind=EventKind.SCALE_OUT, worker="decode-0")]
    events += [Event(t_s=-90.0, kind=EventKind.SCALE_IN, worker=gone, pool=pool)] if gone else []
    found = ask(ID, view(series=prefill_short(kv=0.6), events=events))
    assert bool(causes(found)) is fires
    assert not fires or "moved" in groups(one(found))


@pytest.mark.parametrize(("joined", "named"), [(False, ["prefill-1"]), (True, ["pool prefill", "pool decode"])])
def test_a_pool_that_was_only_drained_is_named_by_who_left(joined: bool, named: list[str]) -> None:
    events = [Event(t_s=-90.0, kind=EventKind.SCALE_IN, worker="prefill-1", pool="prefill")]
    events += [Event(t_s=-60.0, kind=EventKind.SCALE_OUT, worker="decode-0")] if joined else []
    found = one(ask(ID, view(series=prefill_short(kv=0.6), events=events)))
    assert [str(s) for s in found.scopes] == named


def test_where_workers_were_moved_both_pools_may_be_short_and_kv_is_waited_for() -> None:
    events = [
        Event(t_s=-90.0, kind=EventKind.SCALE_IN, worker="prefill-1", pool="prefill"),
        Event(t_s=-60.0, kind=EventKind.SCALE_OUT, worker="decode-0"),
    ]
    full = {"decode-0": {"queue_depth_capacity": 9.0, "queue_depth_deferred": 5.0}}
    found = one(ask(ID, view(series=prefill_short(kv=0.6, more=full), events=events)))
    assert "scale-out-decode" in [d.action for d in found.do_not]


def test_who_left_is_no_place_where_nobody_tells_of_which_pool() -> None:
    events = [Event(t_s=-90.0, kind=EventKind.SCALE_IN, worker="prefill-1")]
    found = one(ask(ID, view(series=prefill_short(kv=0.6), events=events)))
    assert [str(s) for s in found.scopes] == ["pool prefill", "pool decode"]
