"""startup/errors-since-restart: a single restart after which requests never stopped failing."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.frame import Event, EventKind
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, one, restart, sound, view

ID = "startup/errors-since-restart"
WORKERS = ("prefill-0", "prefill-1", "decode-0")


def failing(failed: Points = (0, 150), transfers: Points = None, more: Given | None = None) -> Given:
    given = {"client": {"request_failure": failed}, "decode-0": {"kv_transfer_failures": transfers}}
    return but(but(sound(2), given), more or {})


def test_failing_since_it_came_back() -> None:
    found = one(ask(ID, view(workers=WORKERS, series=failing(), events=[restart("prefill-0", -280)])))
    assert found.cause == "peer-restart-stale-state"
    assert [str(s) for s in found.scopes] == ["prefill-0"]
    assert "restart-victim" in {d.action for d in found.do_not}


def test_errors_that_ended_with_the_start_are_over() -> None:
    burst = [(-900, 0), (-300, 0), (-240, 50), (-200, 50), (-150, 50), (0, 50)]
    found = ask(ID, view(workers=WORKERS, series=failing(burst), events=[restart("prefill-0", -280)]))
    assert causes(found) == []
    assert causes(found, Status.CLEAR) == ["peer-restart-stale-state"]


def test_errors_from_before_are_not_its_doing() -> None:
    assert ask(ID, view(workers=WORKERS, series=failing((100, 150)), events=[restart("prefill-0", -280)])) == ()


@pytest.mark.parametrize(("t_s", "fires"), [(-61.0, True), (-60.0, False)])
def test_it_has_a_minute_to_settle(t_s: float, fires: bool) -> None:
    samples = [(-900, 0), (-300, 0), (-61, 0), (-1, 20), (-0.5, 30), (0, 40)]
    found = ask(
        ID, view(workers=WORKERS, series=failing(samples), events=[restart("prefill-0", t_s - 0.5 if fires else t_s)])
    )
    assert bool(found) is fires


@pytest.mark.parametrize(
    "events",
    [
        [restart("prefill-0", -280), restart("decode-0", -250)],
        [restart("prefill-0", -280), restart("prefill-0", -150)],
        [restart("prefill-0", -280), Event(t_s=-290, kind=EventKind.ROLLOUT, pool="prefill")],
        [],
    ],
)
def test_only_a_single_unplanned_restart(events: list[Event]) -> None:
    assert ask(ID, view(workers=WORKERS, series=failing(), events=events)) == ()


def test_transfers_that_are_counted_say_more() -> None:
    events = [restart("prefill-0", -280)]
    assert one(ask(ID, view(workers=WORKERS, series=failing(transfers=(0, 0)), events=events))).against
    assert ask(ID, view(workers=WORKERS, series=failing(transfers=(0, 5)), events=events)) == ()


def test_report() -> None:
    report = golden(ID, view(workers=WORKERS, series=failing(), events=[restart("prefill-0", -280)]))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert report.top.cause == "peer-restart-stale-state"
