"""kvstore/down: a store that says so, is away, or has no memory behind it."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import DECISIVE, STRONG, Status
from pdops.model.frame import Event, EventKind
from pdops.model.report import Verdict
from pdops.model.view import Health, Presence
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "kvstore/down"
WORKERS = ("prefill-0", "decode-0", "store-0")
LOOKUPS: Given = {"prefill-0": {"external_cache_hits": (60_000, 500), "external_cache_queries": (100_000, 50_000)}}


def stored(up: Points = 1.0, more: Given | None = None) -> Given:
    return but(but(sound(), {"store-0": {"kvstore_up": up}}), more or {})


@pytest.mark.parametrize(("up", "fires"), [(1.0, False), (0.51, False), (0.49, True), (0.0, True)])
def test_the_store_says_so(up: float, fires: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=stored((1.0, up))))
    assert causes(found) == (["kvstore-down"] if fires else [])
    assert bool(causes(found, Status.CLEAR)) is not fires


def test_a_store_that_does_not_answer_may_still_serve() -> None:
    health = {"store-0": Health(Presence.DOWN, why="connection refused")}
    found = one(ask(ID, view(workers=WORKERS, series=stored(None), health=health)))
    assert {w.ratio for w in found.for_} == {STRONG}


def test_a_down_event_is_decisive_until_it_restarts() -> None:
    down = Event(t_s=-100, kind=EventKind.DOWN, worker="store-0")
    found = one(ask(ID, view(workers=WORKERS, series=stored(None), events=[down])))
    assert {w.ratio for w in found.for_} == {DECISIVE}
    back = Event(t_s=-50, kind=EventKind.RESTART, worker="store-0")
    assert ask(ID, view(workers=WORKERS, series=stored(None), events=[down, back])) == ()


def test_up_without_memory() -> None:
    given = stored(1.0, {"store-0": {"kvstore_total_bytes": (64e9, 0.0)}})
    assert groups(one(ask(ID, view(workers=WORKERS, series=given)))) == {"memory"}
    never = stored(1.0, {"store-0": {"kvstore_total_bytes": 0.0}})
    assert causes(ask(ID, view(workers=WORKERS, series=never))) == []


def test_lost_hits_and_failures_support_it() -> None:
    more = but(LOOKUPS, {"client": {"request_failure": (0, 60)}})
    assert groups(one(ask(ID, view(workers=WORKERS, series=stored(0.0, more))))) == {"up", "hits", "failures"}


def test_without_a_store_or_its_signals_it_says_nothing() -> None:
    assert ask(ID, view(series=sound())) == ()
    assert ask(ID, view(workers=WORKERS, series=stored(None))) == ()


def test_pool_totals_are_enough() -> None:
    given = {"pool:kvstore": {"kvstore_up": (1.0, 0.0)}}
    assert [str(s) for s in one(ask(ID, view(series=given))).scopes] == ["pool kvstore"]


def test_report() -> None:
    more = but(LOOKUPS, {"prefill-0": {"queue_depth": (0.2, 12.0)}, "client": {"ttft_seconds.p95": (0.4, 3.0)}})
    report = golden(ID, view(workers=WORKERS, series=stored((1.0, 0.0), more)))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("kvstore-down", ID)
    assert "prefill-undersized" in [r.cause for r in report.ruled_out]
