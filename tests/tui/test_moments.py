"""Going to places of a recording: events, changes of the verdict, marks, tenths, times."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from pdops.model.cluster import Slo
from pdops.model.frame import Event, EventKind
from pdops.model.report import Report, Verdict
from pdops.model.view import View
from pdops_tui.feed import Command, Frames, ReplayFeed
from pdops_tui.landmarks import beyond
from pdops_tui.snapshot import Position
from tests.tui import build as b
from tests.tui.test_feeds import WHO, newest, wait_for

EVENTS = (
    Event(t_s=b.START_S + 12.4, kind=EventKind.RESTART, worker="decode-0"),
    Event(t_s=b.START_S + 33.0, kind=EventKind.DOWN, worker="prefill-0"),
)
RECORDED = Frames(WHO, list(b.frames(WHO, 60, events=EVENTS)))


def judge(view: View) -> Report:
    return b.fault_report(view) if 20 <= view.at_s - b.START_S < 40 else b.healthy_report(view)


@pytest.fixture
def feed() -> Iterator[ReplayFeed]:
    made = ReplayFeed(RECORDED, judge, paused=True)
    made.start()
    wait_for(lambda: made.latest() and at(made).searched_to_s == RECORDED.end_s)
    yield made
    made.stop()
    assert not [t for t in threading.enumerate() if t.name.startswith("pdops-")]


def at(feed: ReplayFeed) -> Position:
    position = newest(feed).position
    assert position is not None
    return position


def place(feed: ReplayFeed) -> float:
    return at(feed).at_s - b.START_S


def go(feed: ReplayFeed, command: Command, then: Callable[[], object]) -> float:
    feed.control(command)
    wait_for(lambda: not at(feed).seeking and then())
    return place(feed)


def test_the_whole_recording_is_searched_while_it_stands_still(feed: ReplayFeed) -> None:
    assert place(feed) == 0
    found = [(m.kind, m.t_s - b.START_S, m.text) for m in at(feed).landmarks]
    assert found == [
        ("change", 0.0, "healthy"),
        ("event", 13.0, "restart decode-0"),
        ("change", 20.0, "fault: transport-fallback-slow"),
        ("event", 33.0, "down prefill-0"),
        ("change", 40.0, "healthy"),
    ]
    assert [m.verdict for m in at(feed).landmarks if m.kind == "change"][1] is Verdict.FAULT


def test_events_and_changes_are_gone_to_one_by_one_and_back(feed: ReplayFeed) -> None:
    assert go(feed, Command("event", 1), lambda: place(feed) == 13) == 13
    assert go(feed, Command("event", 1), lambda: place(feed) == 33) == 33
    assert go(feed, Command("event", -1), lambda: place(feed) == 13) == 13
    assert go(feed, Command("change", 1), lambda: place(feed) == 20) == 20
    report = newest(feed).report
    assert report is not None
    assert report.verdict is Verdict.FAULT
    assert go(feed, Command("change", 1), lambda: place(feed) == 40) == 40
    assert go(feed, Command("change", 1), lambda: at(feed).said) == 40
    assert at(feed).said == "no change of the verdict after this"
    go(feed, Command("change", -1), lambda: place(feed) == 20)
    assert at(feed).said == ""


def test_going_to_a_place_stops_there(feed: ReplayFeed) -> None:
    feed.control(Command("play"))
    go(feed, Command("event", 2), lambda: place(feed) >= 33)
    assert at(feed).paused
    assert place(feed) == 33


@pytest.mark.parametrize(
    ("command", "where"),
    [
        (Command("fraction", 0.5), 30),
        (Command("fraction", 7.0), 60),
        (Command("offset", 12.0), 12),
        (Command("offset", -5.0), 55),
        (Command("offset", -0.0), 60),
        (Command("seek", b.START_S + 44.5), 44),
    ],
)
def test_tenths_offsets_and_times(feed: ReplayFeed, command: Command, where: float) -> None:
    assert go(feed, command, lambda: place(feed) == where) == where


def test_marks_are_set_gone_to_and_taken_away(feed: ReplayFeed) -> None:
    go(feed, Command("to_mark", 1), lambda: at(feed).said == "no mark after this")
    for moment in (40.0, 10.0):
        go(feed, Command("offset", moment), lambda moment=moment: place(feed) == moment)
        feed.control(Command("mark"))
    wait_for(lambda: at(feed).marks == (b.START_S + 10, b.START_S + 40))
    assert go(feed, Command("to_mark", 1), lambda: place(feed) == 40) == 40
    feed.control(Command("mark"))
    wait_for(lambda: at(feed).marks == (b.START_S + 10,))


def test_another_promise_searches_again(feed: ReplayFeed) -> None:
    feed.control(Command("promise", slo=Slo(ttft_s=9.0)))
    wait_for(lambda: newest(feed).slo == Slo(ttft_s=9.0) and at(feed).searched_to_s == RECORDED.end_s)
    assert newest(feed).view.cluster.slo.ttft_s == 9.0
    go(feed, Command("offset", 5.0), lambda: place(feed) == 5)
    go(feed, Command("offset", 2.0), lambda: place(feed) == 2)
    assert newest(feed).view.cluster.slo.ttft_s == 9.0


def test_a_judge_that_fails_leaves_the_events_that_were_found() -> None:
    def broken(view: View) -> Report:
        if view.at_s > b.START_S + 14:
            raise ZeroDivisionError
        return b.healthy_report(view)

    feed = ReplayFeed(RECORDED, broken, paused=True)
    feed.start()
    try:
        wait_for(lambda: feed.latest() and any(m.kind == "event" for m in at(feed).landmarks))
        assert feed.failure is None
    finally:
        feed.stop()


def test_moments_closer_than_a_second_are_one_place() -> None:
    moments = (1.0, 1.5, 4.0, 9.0)
    assert beyond(moments, 0.0, 1) == 1.0
    assert beyond(moments, 0.0, 2) == 4.0
    assert beyond(moments, 0.0, 99) == 9.0
    assert beyond(moments, 4.0, -1) == 1.5
    assert beyond(moments, 9.0, 1) is None
    assert beyond(moments, 0.0, 0) is None


def test_a_wish_that_the_search_has_not_met_yet_is_kept_until_it_has() -> None:
    go_on = threading.Event()

    def slow(view: View) -> Report:
        if view.at_s - b.START_S == 10 and threading.current_thread().name == "pdops-landmarks":
            go_on.wait(60)
        return judge(view)

    feed = ReplayFeed(RECORDED, slow, paused=True)
    feed.start()
    try:
        wait_for(lambda: feed.latest() and at(feed).searched_to_s == b.START_S + 9)
        feed.control(Command("change", 1))
        wait_for(lambda: at(feed).said == "looking for the change of the verdict after this")
        assert place(feed) == 0
        go_on.set()
        wait_for(lambda: not at(feed).seeking and place(feed) == 20)
        wait_for(lambda: at(feed).searched_to_s == RECORDED.end_s)
        feed.control(Command("change", 2))
        wait_for(lambda: place(feed) == 40)
        assert at(feed).said == ""
    finally:
        go_on.set()
        feed.stop()


def test_a_search_that_broke_off_is_not_one_that_found_nothing() -> None:
    def broken(view: View) -> Report:
        if view.at_s >= b.START_S + 20:
            raise ZeroDivisionError("a check")
        return b.healthy_report(view)

    made = ReplayFeed(RECORDED, broken, paused=True)
    made.start()
    try:
        wait_for(lambda: made.latest() and made._moments.done and at(made).searched_to_s)
        made.control(Command("event", 5))
        wait_for(lambda: place(made) == 13)
        made.control(Command("event", 1))
        wait_for(lambda: at(made).said)
        assert at(made).said.startswith("the search for places broke off: ZeroDivisionError: a check; no event after")
    finally:
        made.stop()


def test_a_large_recording_is_searched_once_somebody_asks_for_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdops_tui.moments._MOST_UNASKED", 1)
    feed = ReplayFeed(RECORDED, judge, paused=True)
    feed.start()
    try:
        wait_for(feed.latest)
        feed.control(Command("promise", slo=Slo(ttft_s=2.0)))
        wait_for(lambda: newest(feed).slo)
        assert at(feed).searched_to_s is None
        assert go(feed, Command("event", 1), lambda: place(feed) == 13) == 13
    finally:
        feed.stop()
    assert not [t for t in threading.enumerate() if t.name.startswith("pdops-")]
