"""network/idle-drop: a loss right after a silence, and none since."""

from __future__ import annotations

import pytest

from pdops.model.frame import Event, EventKind
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, line, one, restart, sound, view

ID = "network/idle-drop"
Samples = list[tuple[float, float]]
DONE: Samples = [(-900.0, 0.0), (-300.0, 0.0), (-120.0, 0.0), (-60.0, 20.0), (0.0, 45.0)]
LOST: Samples = [(-900.0, 0.0), (-300.0, 0.0), (-150.0, 0.0), (-120.0, 1.0), (0.0, 1.0)]


def woken(done: Points = None, lost: Points = None, signal: str = "request_timeouts") -> Given:
    return but(sound(), {"client": {"request_success": done or DONE, signal: lost or LOST}})


@pytest.mark.parametrize("signal", ["request_timeouts", "request_failure"])
def test_the_first_is_lost_and_the_next_are_well(signal: str) -> None:
    assert causes(ask(ID, view(series=woken(signal=signal)))) == ["idle-connection-drop"]


@pytest.mark.parametrize(
    ("done", "lost"),
    [
        ([(-900.0, 0.0), (-300.0, 5.0), (-120.0, 5.0), (-60.0, 20.0), (0.0, 45.0)], None),
        ([(-900.0, 0.0), (-300.0, 0.0), (-120.0, 0.0), (0.0, 0.0)], None),
        (None, [(-900.0, 0.0), (-300.0, 0.0), (-120.0, 1.0), (-60.0, 2.0), (0.0, 60.0)]),
        (None, [(-900.0, 0.0), (-300.0, 4.0), (-120.0, 5.0), (0.0, 5.0)]),
        (None, [(-900.0, 0.0), (-300.0, 0.0), (0.0, 0.0)]),
    ],
    ids=["no silence", "nothing since", "losses go on", "losses before", "no loss"],
)
def test_any_other_order_is_something_else(done: Points, lost: Points) -> None:
    assert causes(ask(ID, view(series=woken(done, lost)))) == []


@pytest.mark.parametrize("kind", [EventKind.SCALE_OUT, EventKind.ROLLOUT, EventKind.DOWN])
def test_after_a_start_the_first_requests_pay_for_that(kind: EventKind) -> None:
    for event in (restart("decode-0", -200), Event(t_s=-200, kind=kind, worker="decode-0")):
        assert ask(ID, view(series=woken(), events=[event])) == ()


def test_a_young_view_knows_of_no_silence() -> None:
    assert ask(ID, view(series=but(sound(), {"client": {"request_success": None}}))) == ()


def test_report() -> None:
    said = line("prefill-0", "Some requests timed out when bootstrapping", -120)
    report = golden(ID, view(series=woken(), logs=[said]))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert report.top.cause == "idle-connection-drop"
    assert any("keep-alive" in step for step in report.top.next)
    assert one(ask(ID, view(series=woken()))).do_not[0].action == "raise-retries"
