"""startup/restart-cascade: workers of one side that go down after a peer of the other did."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import MODERATE, STRONG, Status
from pdops.model.frame import Event, EventKind
from pdops.model.report import Verdict
from pdops.model.view import Health, Presence
from tests.diagnose.build import ask, but, causes, golden, line, one, restart, sound, view

ID = "startup/restart-cascade"
WORKERS = ("prefill-0", "prefill-1", "decode-0", "decode-1", "decode-2")
FIRST = restart("prefill-0", -200)


def test_two_that_follow_one_are_strong_and_one_is_not() -> None:
    one_after = one(ask(ID, view(workers=WORKERS, events=[FIRST, restart("decode-0", -150)])))
    assert {w.ratio for w in one_after.for_} == {MODERATE}
    two = one(ask(ID, view(workers=WORKERS, events=[FIRST, restart("decode-0", -150), restart("decode-2", -149)])))
    assert {w.ratio for w in two.for_} == {STRONG}
    assert [str(s) for s in two.scopes] == ["prefill-0", "decode-0", "decode-2"]


def test_it_goes_the_other_way_as_well() -> None:
    events = [restart("decode-0", -200), Event(t_s=-100, kind=EventKind.DOWN, worker="prefill-1")]
    assert causes(ask(ID, view(workers=WORKERS, events=events))) == ["peer-restart-stale-state"]


@pytest.mark.parametrize(("t_s", "fires"), [(-200.0, False), (-199.0, True), (-201.0, True)])
def test_restarts_at_one_moment_have_no_order(t_s: float, fires: bool) -> None:
    """A second earlier it is prefill that follows."""
    assert bool(causes(ask(ID, view(workers=WORKERS, events=[FIRST, restart("decode-0", t_s)])))) is fires


@pytest.mark.parametrize(("t_s", "fires"), [(-600.0, True), (-601.0, False)])
def test_within_ten_minutes(t_s: float, fires: bool) -> None:
    events = [restart("prefill-0", t_s), restart("decode-0", -10)]
    assert bool(causes(ask(ID, view(workers=WORKERS, events=events)))) is fires


def test_mixed_order_is_no_cascade() -> None:
    events = [restart("decode-1", -300), FIRST, restart("decode-0", -150)]
    found = ask(ID, view(workers=WORKERS, events=events))
    assert [str(s) for s in one(found).scopes] == ["decode-1", "prefill-0"]
    events.append(restart("prefill-1", -400))
    assert causes(ask(ID, view(workers=WORKERS, events=events))) == ["peer-restart-stale-state"]


@pytest.mark.parametrize("kind", [EventKind.ROLLOUT, EventKind.CONFIG_CHANGE])
def test_a_rollout_puts_workers_down_on_purpose(kind: EventKind) -> None:
    events = [FIRST, restart("decode-0", -150), Event(t_s=-210, kind=kind, pool="prefill")]
    assert ask(ID, view(workers=WORKERS, events=events)) == ()


def test_when_all_that_fell_restart_again_and_again_it_is_less_sure() -> None:
    once = [FIRST, restart("decode-0", -150)]
    assert one(ask(ID, view(workers=WORKERS, events=once))).cap > 0.9
    again = [*once, restart("prefill-0", -100), restart("decode-0", -50)]
    assert one(ask(ID, view(workers=WORKERS, events=again))).cap < 0.9


def test_no_restart_is_clear_where_workers_are_watched() -> None:
    health = {w: Health(Presence.UP, 1.0) for w in WORKERS}
    assert causes(ask(ID, view(workers=WORKERS, health=health)), Status.CLEAR) == ["peer-restart-stale-state"]
    assert ask(ID, view(workers=WORKERS)) == ()


def test_report() -> None:
    more = {"client": {"request_failure": (0, 70), "request_success": (1200, 400)}}
    events = [FIRST, restart("decode-0", -150), restart("decode-2", -149)]
    logs = [line("decode-0", "nixl: loadRemoteMD failed", -151)]
    report = golden(ID, view(workers=WORKERS, series=but(sound(2, 3), more), events=events, logs=logs))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("peer-restart-stale-state", ID)
