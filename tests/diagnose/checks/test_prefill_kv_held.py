"""prefill/kv-held: a full prefill that computes nothing, and whether decode has room."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "prefill/kv-held"
BLIND: Given = {
    "decode-0": {
        "queue_depth": None,
        "queue_depth_capacity": None,
        "queue_depth_deferred": None,
        "kv_cache_usage": None,
    }
}


def held(usage: Points = (0.4, 0.95), busy: Points = (0.7, 0.05), more: Given | None = None) -> Given:
    return but(but(sound(), {"prefill-0": {"kv_cache_usage": usage, "gpu_util": busy}}), more or {})


@pytest.mark.parametrize(("usage", "fires"), [(0.85, False), (0.86, True)])
def test_a_full_pool(usage: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=held((0.4, usage)))))) is fires


@pytest.mark.parametrize(("busy", "fires"), [(0.3, False), (0.29, True)])
def test_and_an_idle_gpu(busy: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=held(busy=(0.7, busy)))))) is fires


@pytest.mark.parametrize(("finished", "fires"), [(0, True), (1, False)])
def test_or_nothing_that_finishes(finished: float, fires: bool) -> None:
    given = held(busy=None, more={"client": {"request_success": (100, finished)}})
    assert bool(causes(ask(ID, view(series=given)))) is fires


def test_decode_with_room_makes_it_sure() -> None:
    found = one(ask(ID, view(series=held())))
    assert "room" in groups(found)
    assert found.cap > 0.9


def test_decode_that_tells_nothing_leaves_it_open() -> None:
    found = ask(ID, view(series=held(more=BLIND)))
    assert one(found).cap < 0.5
    assert [m.signal for m in one(found, Status.UNKNOWN).missing] == ["queue_depth"]


@pytest.mark.parametrize(
    "behind", [{"queue_depth": (0, 5)}, {"queue_depth_deferred": (0, 5)}, {"kv_cache_usage": (0.4, 0.9)}]
)
def test_decode_that_is_behind_holds_it_by_right(behind: dict[str, Points]) -> None:
    assert ask(ID, view(series=held(more={"decode-0": behind}))) == ()


def test_report() -> None:
    more = {"prefill-0": {"queue_depth": (0, 12)}, "client": {"ttft_seconds.p95": (0.4, 9.0)}}
    report = golden(ID, view(series=held(more=more)))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("kv-strand-prefill", ID)
    assert "scale-out-prefill" in {d.action for d in report.top.do_not}
