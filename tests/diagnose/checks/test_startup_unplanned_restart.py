"""startup/unplanned-restart: one restart that nobody announced, told and never believed alone."""

from __future__ import annotations

import pytest

from pdops.diagnose.engine import diagnose
from pdops.model.frame import Event, EventKind
from pdops.model.report import Verdict
from tests.diagnose.build import ask, but, causes, golden, line, one, restart, sound, view

ID = "startup/unplanned-restart"


def test_one_restart_is_told_and_decides_nothing() -> None:
    found = one(ask(ID, view(series=sound(), events=[restart("decode-0", -90)])))
    assert found.cause == "engine-crash"
    assert (found.verdict, found.cap < 0.5) == (Verdict.UNKNOWN, True)
    assert "exit status of decode-0" in found.next[0]


@pytest.mark.parametrize("kind", [EventKind.ROLLOUT, EventKind.CONFIG_CHANGE, EventKind.SCALE_OUT, EventKind.SCALE_IN])
def test_a_planned_change_explains_it(kind: EventKind) -> None:
    planned = Event(t_s=-100, kind=kind, pool="decode")
    assert ask(ID, view(series=sound(), events=[restart("decode-0", -90), planned])) == ()


def test_a_loop_is_told_elsewhere() -> None:
    assert ask(ID, view(series=sound(), events=[restart("decode-0", -190), restart("decode-0", -90)])) == ()


@pytest.mark.parametrize(("apart_s", "together"), [(10.0, True), (11.0, False)])
def test_both_sides_that_end_together_ended_over_one_thing(apart_s: float, together: bool) -> None:
    events = [restart("prefill-0", -90 - apart_s), restart("decode-0", -90)]
    assert ("client-input" in causes(ask(ID, view(series=sound(), events=events)))) is together


def test_two_of_one_side_did_not_end_over_a_hand_over() -> None:
    workers = ("prefill-0", "decode-0", "decode-1")
    events = [restart("decode-0", -90), restart("decode-1", -90)]
    assert causes(ask(ID, view(workers=workers, series=sound(1, 2), events=events))) == ["engine-crash"]


def test_a_line_about_the_crash_and_the_restart_have_one_vote() -> None:
    events, logs = [restart("decode-0", -90)], [line("decode-0", "Segmentation fault")]
    alone = crash(logs=logs)
    assert crash(logs=logs, events=events) == alone


def crash(**more: object) -> float:
    report = diagnose(view(series=sound(), **more))  # type: ignore[arg-type]
    return next(h.confidence for h in report.hypotheses if h.cause == "engine-crash")


def test_alone_it_accuses_nobody() -> None:
    made = {"decode-0": {"generated_tokens": (60_000, 30_000)}}
    assert diagnose(view(series=but(sound(), made), events=[restart("decode-0", -500)])).verdict is Verdict.HEALTHY


def test_report() -> None:
    less = {"client": {"request_success": (1200, 300)}, "decode-0": {"running_requests": (8, 0)}}
    report = golden(ID, view(series=but(sound(), less), events=[restart("decode-0", -90)]))
    assert report.verdict is Verdict.UNKNOWN
    assert report.top is not None
    assert report.top.cause == "engine-crash"
