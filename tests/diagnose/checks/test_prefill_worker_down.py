"""prefill/worker-down: who is away, and how sure that is."""

from __future__ import annotations

from pdops.diagnose.finding import Status
from pdops.model.frame import Event, EventKind
from pdops.model.report import Verdict
from pdops.model.view import Health, Presence, View
from tests.diagnose.build import Given, ask, but, causes, golden, one, sound, view

ID = "prefill/worker-down"
CAUSE = "prefill-down"
AWAY = Health(Presence.DOWN, 40.0, "does not answer: connection refused", -40.0)


def seen(health: dict[str, Health] | None = None, changes: Given | None = None, events: tuple[Event, ...] = ()) -> View:
    workers = ("prefill-0", "prefill-1", "decode-0", "decode-1")
    return view(workers=workers, series=but(sound(2, 2), changes or {}), health=health, events=events)


def down(name: str, t_s: float = -40.0) -> Event:
    return Event(t_s=t_s, kind=EventKind.DOWN, worker=name, detail="connection refused")


def test_a_worker_that_does_not_answer_fires_and_is_named() -> None:
    found = one(ask(ID, seen({"prefill-1": AWAY})))
    assert found.cause == CAUSE
    assert [str(s) for s in found.scopes] == ["prefill-1"]
    assert "connection refused" in found.next[0]


def test_a_down_event_and_failing_requests_make_it_surer() -> None:
    alone = one(ask(ID, seen({"prefill-1": AWAY})))
    both = one(ask(ID, seen({"prefill-1": AWAY}, {"client": {"request_failure": (0, 30)}}, (down("prefill-1"),))))
    assert max(w.ratio for w in both.for_) > max(w.ratio for w in alone.for_)
    assert {w.group for w in both.for_} >= {"presence", "failures"}


def test_a_restart_after_the_down_event_is_no_worker_that_is_down() -> None:
    back = Event(t_s=-20.0, kind=EventKind.RESTART, worker="prefill-1")
    up = {"prefill-1": Health(Presence.UP, 1.0)}
    assert causes(ask(ID, seen(up, events=(down("prefill-1"), back)))) == []


def test_requests_that_succeed_speak_against_a_whole_role_being_away() -> None:
    found = one(ask(ID, seen({"prefill-0": AWAY, "prefill-1": AWAY})))
    assert [w.evidence.signal for w in found.against] == ["request_success"]
    failing = {"client": {"request_failure": (0, 1)}}
    assert one(ask(ID, seen({"prefill-0": AWAY, "prefill-1": AWAY}, failing))).against == ()


def test_requests_that_were_past_it_when_it_went_away_say_nothing() -> None:
    gone = Health(Presence.DOWN, 8.0, "does not answer: no answer yet", -8.0)
    assert one(ask(ID, seen({"prefill-0": gone, "prefill-1": gone}))).against == ()


def test_is_clear_when_all_have_data() -> None:
    assert causes(ask(ID, seen()), Status.CLEAR) == [CAUSE]


def test_a_stale_or_silent_worker_is_neither_down_nor_answering() -> None:
    for presence in (Presence.STALE, Presence.NEVER):
        assert ask(ID, seen({"prefill-1": Health(presence, 90.0, "nothing heard")})) == ()
    assert ask(ID, view(series={})) == ()


def test_is_silent_about_a_role_nobody_listed() -> None:
    assert ask(ID, view(workers=("decode-0",), series=sound())) == ()


def test_report() -> None:
    changes = {"client": {"request_failure": (0, 60)}, "decode-0": {"kv_transfer_failures": (0, 60)}}
    report = golden(ID, seen({"prefill-1": AWAY}, changes, (down("prefill-1"),)))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == (CAUSE, ID)
