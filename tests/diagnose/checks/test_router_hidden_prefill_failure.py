"""router/hidden-prefill-failure: prefill fails a request, the client sees a timeout."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.frame import Event, EventKind
from pdops.model.report import Layer, Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "router/hidden-prefill-failure"


def hidden(failed: Points = (0, 60), timeouts: Points = (0, 60), seen: Points = (0, 60)) -> Given:
    given = {
        "prefill-0": {"request_failure": failed},
        "client": {"request_timeouts": timeouts, "request_failure": seen},
    }
    return but(sound(), given)


def test_failures_that_reach_nobody() -> None:
    found = one(ask(ID, view(series=hidden())))
    assert (found.cause, found.layer) == ("no-timeout-hang", Layer.ROUTER)
    assert groups(found) == {"prefill", "timeouts"}


@pytest.mark.parametrize(("seen", "fires"), [(89, True), (90, False)])
def test_half_of_them_passed_on_as_errors(seen: float, fires: bool) -> None:
    found = ask(ID, view(series=hidden(seen=(0, seen))))
    assert bool(causes(found)) is fires
    assert bool(causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize(
    ("failed", "timeouts"), [((0, 0), (0, 60)), ((0, 60), (0, 0)), (None, (0, 60)), ((0, 60), None)]
)
def test_both_have_to_be_seen(failed: Points, timeouts: Points) -> None:
    assert ask(ID, view(series=hidden(failed, timeouts))) == ()


@pytest.mark.parametrize(("failed", "fires"), [(30, True), (29, False)])
def test_too_few_failures_of_prefill_do_not_make_the_timeouts(failed: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=hidden(failed=(0, failed)))))) is fires


def test_clients_that_count_no_failures_leave_it_open() -> None:
    assert causes(ask(ID, view(series=hidden(seen=None)))) == ["no-timeout-hang"]


def test_a_prefill_worker_that_is_away_speaks_against_it() -> None:
    down = Event(t_s=-100, kind=EventKind.DOWN, worker="prefill-1")
    assert one(ask(ID, view(workers=("prefill-0", "prefill-1", "decode-0"), series=hidden(), events=[down]))).against


def test_report() -> None:
    report = golden(ID, view(series=hidden()))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert report.top.cause == "no-timeout-hang"
