"""startup/restart-loop: two restarts in a quarter of an hour, evenly spaced or not, planned or not."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import DECISIVE, STRONG, Status
from pdops.model.frame import Event, EventKind
from pdops.model.report import Verdict
from pdops.model.view import Health, Presence
from tests.diagnose.build import Given, ask, but, causes, golden, groups, one, restart, sound, view

ID = "startup/restart-loop"


def times(*ago: float) -> list[Event]:
    return [restart("decode-0", -t) for t in ago]


@pytest.mark.parametrize(("ago", "ratio"), [((600,), None), ((600, 100), STRONG), ((800, 450, 100), DECISIVE)])
def test_two_make_a_loop_and_three_make_it_sure(ago: tuple[float, ...], ratio: float | None) -> None:
    found = ask(ID, view(series=sound(), events=times(*ago)))
    assert causes(found) == ([] if ratio is None else ["engine-crash"])
    if ratio is not None:
        assert max(w.ratio for w in one(found).for_) == ratio
        assert [str(s) for s in one(found).scopes] == ["decode-0"]


@pytest.mark.parametrize(("oldest", "fires"), [(900, True), (901, False)])
def test_within_a_quarter_of_an_hour(oldest: float, fires: bool) -> None:
    assert bool(ask(ID, view(series=sound(), events=times(oldest, 60)))) is fires


def test_one_restart_each_of_two_workers_is_no_loop() -> None:
    events = [restart("decode-0", -300), restart("prefill-0", -200)]
    assert causes(ask(ID, view(series=sound(), events=events))) == []


def test_start_times_that_change_count_without_events() -> None:
    starts = [(-900.0, 100.0), (-600.0, 100.0), (-585.0, 310.0), (-300.0, 310.0), (-285.0, 610.0), (0.0, 610.0)]
    given = but(sound(), {"decode-0": {"process_start_seconds": starts}})
    assert causes(ask(ID, view(series=given))) == ["engine-crash"]


@pytest.mark.parametrize(("middle", "even"), [(450, True), (520, False)])
def test_even_pauses_are_noted(middle: float, even: bool) -> None:
    found = one(ask(ID, view(series=sound(), events=times(800, middle, 100))))
    assert ("even" in groups(found)) is even


@pytest.mark.parametrize(("running", "same"), [(10.3, True), (10.5, False)])
def test_load_that_did_not_change_is_noted(running: float, same: bool) -> None:
    given = but(sound(), {"decode-0": {"running_requests": (8.0, running)}})
    found = one(ask(ID, view(series=given, events=times(600, 100))))
    assert ("load" in groups(found)) is same


def test_a_worker_whose_transfers_fail_may_die_of_them() -> None:
    given = but(sound(), {"decode-0": {"kv_transfer_failures": (0, 2)}})
    assert [w.group for w in one(ask(ID, view(series=given, events=times(600, 100)))).against] == ["transfers"]


@pytest.mark.parametrize(("late", "together"), [(30, True), (31, False)])
def test_both_sides_that_fall_at_the_same_moments_die_of_something_between_them(late: float, together: bool) -> None:
    events = [*times(600, 100), restart("prefill-0", -600 + late), restart("prefill-0", -100 + late)]
    assert [w.group for w in one(ask(ID, view(series=sound(), events=events))).against] == ["together"] * together


def test_a_rollout_for_each_restart_speaks_against() -> None:
    one_rollout = [Event(t_s=-610, kind=EventKind.ROLLOUT, pool="decode")]
    both = [*one_rollout, Event(t_s=-110, kind=EventKind.ROLLOUT, worker="decode-0")]
    assert one(ask(ID, view(series=sound(), events=[*times(600, 100), *one_rollout]))).against == ()
    assert one(ask(ID, view(series=sound(), events=[*times(600, 100), *both]))).against != ()


def test_is_clear_only_when_every_worker_tells_its_start() -> None:
    told: Given = {name: {"process_start_seconds": 5.0} for name in ("prefill-0", "decode-0")}
    assert causes(ask(ID, view(series=but(sound(), told))), Status.CLEAR) == ["engine-crash"]
    del told["decode-0"]  # type: ignore[attr-defined]
    assert ask(ID, view(series=but(sound(), told))) == ()


def test_report() -> None:
    health = {"decode-1": Health(Presence.DOWN, 20.0, "does not answer: connection refused", -20.0)}
    events = [restart("decode-1", -t) for t in (780, 540, 300, 60)]
    workers = ("prefill-0", "decode-0", "decode-1")
    report = golden(ID, view(workers=workers, series=sound(1, 2), events=events, health=health))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("engine-crash", ID)
    assert "decode-down" in [r.cause for r in report.ruled_out]
