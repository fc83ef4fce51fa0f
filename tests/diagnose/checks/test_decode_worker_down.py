"""decode/worker-down: who is away, and how sure that is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pdops.diagnose.finding import Status
from pdops.model.frame import Event, EventKind
from pdops.model.report import Verdict
from pdops.model.view import Health, Presence, View
from tests.diagnose.build import Given, Points, ask, but, causes, golden, one, restart, sound, steps, view

ID = "decode/worker-down"
CAUSE = "decode-down"
AWAY = Health(Presence.DOWN, 40.0, "does not answer: connection refused", -40.0)


def seen(health: dict[str, Health] | None = None, changes: Given | None = None, events: tuple[Event, ...] = ()) -> View:
    workers = ("prefill-0", "prefill-1", "decode-0", "decode-1")
    return view(workers=workers, series=but(sound(2, 2), changes or {}), health=health, events=events)


def down(name: str, t_s: float = -40.0) -> Event:
    return Event(t_s=t_s, kind=EventKind.DOWN, worker=name, detail="connection refused")


def test_a_worker_that_does_not_answer_fires_and_is_named() -> None:
    found = one(ask(ID, seen({"decode-1": AWAY})))
    assert found.cause == CAUSE
    assert [str(s) for s in found.scopes] == ["decode-1"]
    assert "connection refused" in found.next[0]


def test_a_down_event_and_failing_requests_make_it_surer() -> None:
    alone = one(ask(ID, seen({"decode-1": AWAY})))
    both = one(ask(ID, seen({"decode-1": AWAY}, {"client": {"request_failure": (0, 30)}}, (down("decode-1"),))))
    assert max(w.ratio for w in both.for_) > max(w.ratio for w in alone.for_)
    assert {w.group for w in both.for_} >= {"presence", "failures"}


def test_a_restart_after_the_down_event_is_no_worker_that_is_down() -> None:
    back = Event(t_s=-20.0, kind=EventKind.RESTART, worker="decode-1")
    up = {"decode-1": Health(Presence.UP, 1.0)}
    assert causes(ask(ID, seen(up, events=(down("decode-1"), back)))) == []


def test_requests_that_succeed_speak_against_a_whole_role_being_away() -> None:
    found = one(ask(ID, seen({"decode-0": AWAY, "decode-1": AWAY})))
    assert [w.evidence.signal for w in found.against] == ["request_success"]
    failing = {"client": {"request_failure": (0, 1)}}
    assert one(ask(ID, seen({"decode-0": AWAY, "decode-1": AWAY}, failing))).against == ()


def test_is_clear_when_all_have_data() -> None:
    assert causes(ask(ID, seen()), Status.CLEAR) == [CAUSE]


def test_a_stale_or_silent_worker_is_neither_down_nor_answering() -> None:
    for presence in (Presence.STALE, Presence.NEVER):
        assert ask(ID, seen({"decode-1": Health(presence, 90.0, "nothing heard")})) == ()
    assert ask(ID, view(series={})) == ()


def test_is_silent_about_a_role_nobody_listed() -> None:
    assert ask(ID, view(workers=("prefill-0",), series=sound())) == ()


def test_report() -> None:
    changes: Given = {"client": {"request_failure": (0, 60)}, "prefill-0": {"kv_transfer_expired": (0, 4)}}
    report = golden(ID, seen({"decode-1": AWAY}, changes, (down("decode-1"),)))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == (CAUSE, ID)


def gap(silent_s: float, everybody: bool = False, slow_s: float = 4.0, **client: Points) -> View:
    """Return a live view in which decode-1, or everybody, gave no sample for a while until a minute ago."""
    times = [t for t, _ in steps(1.0, 1.0) if not -60.0 - silent_s < t < -60.0]
    holed = {"running_requests": [(t, 8.0) for t in times]}
    names = ("prefill-0", "prefill-1", "decode-0", "decode-1") if everybody else ("decode-1",)
    changes: Given = {"client": {"ttft_seconds.p95": (0.4, slow_s), **client}, **dict.fromkeys(names, holed)}  # type: ignore[dict-item]
    return replace(seen(changes=changes), relative=False)


@pytest.mark.parametrize(("silent_s", "named"), [(30.0, []), (90.0, ["decode-1"])])
def test_a_worker_that_was_silent_a_moment_ago_while_clients_wait(silent_s: float, named: list[str]) -> None:
    assert [str(s) for f in ask(ID, gap(silent_s)) for s in f.scopes if f.status is Status.FIRED] == named


def test_silence_of_all_is_the_scraper_s_and_silence_that_nobody_felt_is_over() -> None:
    assert causes(ask(ID, gap(90.0, everybody=True))) == []
    assert causes(ask(ID, gap(90.0, slow_s=0.4))) == []


def test_stragglers_are_no_service() -> None:
    few = {"client": {"request_success": [(-900.0, 0), (-300.0, 1200), (-45.0, 1700), (-30.0, 1700), (0.0, 1704)]}}
    assert one(ask(ID, seen({"decode-0": AWAY, "decode-1": AWAY}, few))).against == ()


def test_a_worker_that_is_rolled_out_while_others_serve_is_no_fault() -> None:
    rollout = Event(t_s=-60.0, kind=EventKind.ROLLOUT, worker="decode-1")
    well = {"client": {"request_failure": (0, 0)}}
    away = {"decode-1": AWAY}
    assert causes(ask(ID, seen(away, well, (rollout,))), Status.CLEAR) == [CAUSE]
    failing = {"client": {"request_failure": (0, 30)}}
    assert causes(ask(ID, seen(away, failing, (rollout,)))) == [CAUSE]
    assert causes(ask(ID, seen({"decode-0": AWAY, "decode-1": AWAY}, well, (rollout,)))) == [CAUSE]


@pytest.mark.parametrize(
    ("kind", "fires"),
    [
        (EventKind.ROLLOUT, False),
        (EventKind.SCALE_IN, False),
        (EventKind.SCALE_OUT, True),
        (EventKind.CONFIG_CHANGE, True),
    ],
)
def test_only_plans_that_take_a_worker_away_make_its_absence_no_fault(kind: EventKind, fires: bool) -> None:
    event = Event(t_s=-60.0, kind=kind, worker="decode-1")
    found = ask(ID, seen({"decode-1": AWAY}, {"client": {"request_failure": (0, 0)}}, (event,)))
    assert (causes(found) == [CAUSE]) is fires


@pytest.mark.parametrize(
    ("good", "against"),
    [
        ([(-900.0, 0), (-300.0, 1200), (-50.0, 1700), (0.0, 1710)], ["request_failure"]),
        ([(-900.0, 0), (-300.0, 1200), (-50.0, 1700), (0.0, 1790)], []),
        (None, []),
    ],
)
def test_requests_that_mostly_fail_although_the_worker_is_back_speak_against_its_absence(
    good: Points, against: list[str]
) -> None:
    bad: Points = [(-900.0, 0), (-300.0, 0), (-50.0, 0), (0.0, 40)]
    found = one(ask(ID, gap(90.0, request_failure=bad, request_success=good)))
    assert [w.evidence.signal for w in found.against] == against


def rollout(name: str, t_s: float) -> Event:
    return Event(t_s=t_s, kind=EventKind.ROLLOUT, worker=name)


def away(since_s: float) -> dict[str, Health]:
    return {"decode-1": Health(Presence.DOWN, since_s, "does not answer: connection refused", -since_s)}


@pytest.mark.parametrize(("begun_s", "fires"), [(299.0, False), (301.0, True)])
def test_a_rollout_that_takes_longer_than_any_start_is_a_worker_that_is_away(begun_s: float, fires: bool) -> None:
    found = ask(ID, seen(away(begun_s), events=(rollout("decode-1", -begun_s),)))
    assert (causes(found) == [CAUSE]) is fires


@pytest.mark.parametrize(("begun_s", "fires"), [(55.0, False), (65.0, True)])
def test_how_long_a_start_takes_is_learnt_from_the_peers_that_were_replaced(begun_s: float, fires: bool) -> None:
    times = [float(t) for t in range(-900, 1) if not -200 < t < -170]
    others = {"decode-0": {"running_requests": [(t, 8.0) for t in times]}}
    live = seen(away(begun_s), others, (rollout("decode-0", -200.0), rollout("decode-1", -begun_s)))
    found = ask(ID, replace(live, relative=False, interval_s=1.0))
    assert (causes(found) == [CAUSE]) is fires


@pytest.mark.parametrize(("failed", "fires"), [([(-41.0, 0), (-31.0, 30), (0.0, 30)], False), ((0, 30), True)])
def test_requests_that_a_rollout_ended_are_no_outage_and_those_that_fail_on_are(failed: Points, fires: bool) -> None:
    bad: Points = [(-900.0, 0), (-300.0, 0), *failed] if isinstance(failed, list) else failed
    found = ask(ID, seen(away(40.0), {"client": {"request_failure": bad}}, (rollout("decode-1", -45.0),)))
    assert (causes(found) == [CAUSE]) is fires


@pytest.mark.parametrize(
    ("begun", "slow_s", "fires"),
    [
        ({"decode-0": -120.0}, 0.4, False),
        ({"decode-0": -301.0}, 0.4, True),
        ({"decode-0": -120.0}, 4.0, True),
        ({"decode-0": -120.0, "decode-2": -60.0}, 0.4, False),
        ({"decode-0": -120.0, "decode-2": -118.0}, 0.4, True),
    ],
)
def test_workers_that_begin_anew_one_by_one_and_harm_nobody_are_a_rollout(
    begun: dict[str, float], slow_s: float, fires: bool
) -> None:
    given = but(sound(2, 3), {"client": {"ttft_seconds.p95": (0.4, slow_s)}})
    workers = ("prefill-0", "prefill-1", "decode-0", "decode-1", "decode-2")
    events = [restart(name, t_s) for name, t_s in begun.items()]
    found = ask(ID, view(workers=workers, series=given, health=away(20.0), events=events))
    assert (causes(found) == [CAUSE]) is fires


@pytest.mark.parametrize(("failed", "fires"), [((0, 0), False), (None, True)])
def test_without_word_of_a_plan_no_harm_must_be_known_for_a_rollout(failed: Points, fires: bool) -> None:
    given = but(sound(2, 2), {"client": {"request_failure": failed}})
    workers = ("prefill-0", "prefill-1", "decode-0", "decode-1")
    found = ask(ID, view(workers=workers, series=given, health=away(20.0), events=[restart("decode-0", -120.0)]))
    assert (causes(found) == [CAUSE]) is fires


@pytest.mark.parametrize("counted", [None, [(-900.0, 0), (-300.0, 0)]])
def test_a_plan_is_no_word_that_the_others_serve_where_nobody_counts_failures(counted: Points) -> None:
    rollout_ = (rollout("decode-1", -45.0),)
    found = ask(ID, seen(away(40.0), {"client": {"request_failure": counted}}, rollout_))
    told = one(found, Status.UNKNOWN)
    assert (causes(found), causes(found, Status.CLEAR), told.missing[0].signal) == ([], [], "request_failure")
