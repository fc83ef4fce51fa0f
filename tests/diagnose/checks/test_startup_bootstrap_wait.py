"""startup/bootstrap-wait: a rendezvous that is not reached, and which side does not come."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Layer, Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "startup/bootstrap-wait"
LOST: Given = {"client": {"request_timeouts": (0, 12)}}


def waiting(depth: Points = (0, 20), more: Given | None = None) -> Given:
    return but(but(sound(), {"prefill-0": {"prefill_queue_depth": depth}}), more or {})


@pytest.mark.parametrize(
    ("depth", "fires"), [((0, 2.0), False), ((0, 2.1), True), ((10, 15.0), False), ((10, 15.1), True)]
)
def test_a_queue_that_grew(depth: Points, fires: bool) -> None:
    found = ask(ID, view(series=waiting(depth)))
    assert bool(causes(found)) is fires
    assert bool(causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize("signal", ["request_timeouts", "request_failure"])
def test_only_with_lost_requests_it_may_be_believed(signal: str) -> None:
    assert one(ask(ID, view(series=waiting()))).cap < 0.5
    found = one(ask(ID, view(series=waiting(more={"client": {signal: (0, 3)}}))))
    assert found.cap > 0.9
    assert "lost" in groups(found)


def test_decode_that_does_not_admit_is_named() -> None:
    found = one(ask(ID, view(series=waiting(more=but(LOST, {"decode-0": {"decode_prealloc_queue_depth": (0, 40)}})))))
    assert found.layer is Layer.DECODE
    assert [str(s) for s in found.scopes] == ["prefill-0", "decode-0"]
    assert "preallocation" in found.next[0]


def test_decode_with_room_leaves_the_port() -> None:
    found = one(ask(ID, view(series=waiting(more=LOST))))
    assert found.layer is None
    assert "bootstrap port" in found.next[0]


def test_pairs_that_move_kv_did_meet() -> None:
    found = one(ask(ID, view(series=waiting(more=but(LOST, {"decode-0": {"transfer_queue_depth": (0, 30)}})))))
    assert [w.group for w in found.against] == ["transfer_queue_depth"]


@pytest.mark.parametrize(("busy", "idle"), [(0.29, True), (0.3, False)])
def test_an_idle_gpu_does_not_compute_what_they_wait_for(busy: float, idle: bool) -> None:
    found = one(ask(ID, view(series=waiting(more=but(LOST, {"prefill-0": {"gpu_util": busy}})))))
    assert ("idle" in groups(found)) is idle


def test_engines_without_this_queue_are_not_judged() -> None:
    assert ask(ID, view(series=sound())) == ()


def test_report() -> None:
    report = golden(ID, view(series=waiting(more=but(LOST, {"decode-0": {"decode_prealloc_queue_depth": (2, 40)}}))))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("bootstrap-timeout", ID)
