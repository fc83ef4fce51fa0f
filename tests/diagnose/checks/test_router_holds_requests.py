"""router/holds-requests: nothing ends, the router holds requests, the engines are idle."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.frame import Event, EventKind
from pdops.model.report import Verdict
from tests.diagnose.build import Given, ask, but, causes, golden, one, sound, view

ID = "router/holds-requests"
WORKERS = ("prefill-0", "decode-0", "router-0")
RESTART = Event(t_s=-60.0, kind=EventKind.RESTART, worker="router-0")


def held(in_router: float = 8.0, ended: float = 0.0, running: float = 0.0) -> Given:
    idle = {"running_requests": running, "queue_depth": 0.0}
    given = {
        "router": {"running_requests": in_router},
        "client": {"request_success": (600, ended), "request_failure": (0, 0)},
        "prefill-0": idle,
        "decode-0": idle,
    }
    return but(sound(1, 1), given)


def test_a_restarted_router_has_forgotten_its_workers() -> None:
    found = one(ask(ID, view(workers=WORKERS, series=held(), events=[RESTART])))
    assert found.cause == "router-stale-state"
    assert [str(s) for s in found.scopes] == ["router-0"]


def test_without_a_restart_it_is_another_fault_of_the_router() -> None:
    assert causes(ask(ID, view(workers=WORKERS, series=held()))) == ["router-fault"]


@pytest.mark.parametrize(("in_router", "fires"), [(0.0, False), (1.0, True)])
def test_one_request_that_stands_is_enough(in_router: float, fires: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=held(in_router)))
    assert bool(causes(found)) is fires
    assert bool(causes(found, Status.CLEAR)) is not fires


def test_requests_that_end_clear_it() -> None:
    found = ask(ID, view(workers=WORKERS, series=held(ended=300)))
    assert causes(found, Status.CLEAR) == ["router-stale-state"]


def test_requests_that_stand_in_an_engine_are_the_engines() -> None:
    assert ask(ID, view(workers=WORKERS, series=held(running=3.0))) == ()


def test_a_router_that_does_not_tell_is_not_judged() -> None:
    assert ask(ID, view(workers=WORKERS, series=but(held(), {"router": {"running_requests": None}}))) == ()


def test_without_ends_at_clients_it_is_unknown() -> None:
    given = {"client": {"request_success": None, "request_failure": None}}
    assert causes(ask(ID, view(workers=WORKERS, series=but(held(), given))), Status.UNKNOWN) == ["router-stale-state"]


def test_requests_that_may_have_failed_are_not_said_to_stand() -> None:
    given: Given = {"client": {"request_failure": None}}
    assert causes(ask(ID, view(workers=WORKERS, series=but(held(), given))), Status.UNKNOWN) == ["router-stale-state"]
    assert causes(ask(ID, view(workers=WORKERS, series=but(held(ended=300), given))), Status.CLEAR)


@pytest.mark.parametrize("signal", ["running_requests", "queue_depth"])
def test_an_engine_that_does_not_tell_is_not_taken_for_idle(signal: str) -> None:
    series = but(held(), {"decode-0": {signal: None}})
    (found,) = ask(ID, view(workers=WORKERS, series=series, events=[RESTART]))
    assert (found.status, str(found.scopes[0])) == (Status.UNKNOWN, "decode-0")


def test_report() -> None:
    report = golden(ID, view(workers=WORKERS, series=held(), events=[RESTART]))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert report.top.cause == "router-stale-state"


def test_a_worker_that_is_away_may_be_why_requests_stand() -> None:
    down = Event(t_s=-30.0, kind=EventKind.DOWN, worker="decode-0")
    assert causes(ask(ID, view(workers=WORKERS, series=held(), events=[down]))) == []
