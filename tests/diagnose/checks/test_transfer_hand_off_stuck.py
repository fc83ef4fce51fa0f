"""transfer/hand-off-stuck: a queue between the two sides that only grows."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, one, sound, view

ID = "transfer/hand-off-stuck"


def growing(points: Points, more: Given | None = None) -> Given:
    return but(but(sound(), {"prefill-0": {"prefill_queue_depth": points}}), more or {})


def rising(first: float, then: float) -> list[tuple[float, float]]:
    return [(-900, first), (-600, first), (-315, first), (-285, then), (-150, then + 1), (0, then + 2)]


def test_a_queue_that_never_falls_is_told_and_decides_nothing() -> None:
    found = one(ask(ID, view(series=growing(rising(3, 9)))))
    assert found.cause == "no-timeout-hang"
    assert found.verdict is Verdict.UNKNOWN
    assert found.cap < 0.5


@pytest.mark.parametrize(("first", "then", "fires"), [(3, 3, True), (3, 2, False), (0, 0, False)])
def test_below_where_it_was_it_is_worked_off(first: float, then: float, fires: bool) -> None:
    points = [(-900, first), (-600, first), (-315, first), (-285, then), (0, then)]
    assert causes(ask(ID, view(series=growing(points)))) == (["no-timeout-hang"] if fires else [])


def test_a_queue_that_falls_again_is_worked_off() -> None:
    assert ask(ID, view(series=growing([(-900, 2), (-600, 2), (-285, 5), (-150, 9), (0, 5)]))) == ()


@pytest.mark.parametrize(
    ("signal", "now"), [("decode_prealloc_queue_depth", 4.0), ("queue_depth_capacity", 4.0), ("kv_cache_usage", 0.95)]
)
def test_with_no_room_on_decode_prefill_has_to_wait(signal: str, now: float) -> None:
    found = ask(ID, view(series=growing(rising(3, 9), {"decode-0": {signal: now}})))
    assert causes(found) == []
    assert causes(found, Status.CLEAR) == ["no-timeout-hang"]


@pytest.mark.parametrize(("moved", "fires"), [((240e9, 120e9), False), ((240e9, 0), True)])
def test_on_decode_bytes_that_come_in_are_work(moved: Points, fires: bool) -> None:
    given = but(sound(), {"decode-0": {"transfer_queue_depth": rising(1, 3), "kv_transfer_bytes": moved}})
    assert bool(causes(ask(ID, view(series=given)))) is fires


def test_what_is_not_told_of_decode_is_missing() -> None:
    gone = {"decode-0": dict.fromkeys(sound()["decode-0"])}
    found = one(ask(ID, view(series=growing(rising(3, 9), gone))))
    assert [m.signal for m in found.missing] == ["decode_prealloc_queue_depth"]


def test_report() -> None:
    waits = {"transfer_queue_depth": rising(1, 3), "kv_transfer_bytes": None}
    late = {"client": {"ttft_seconds.p95": (0.4, 4.0)}, "decode-0": waits}
    report = golden(ID, view(series=but(sound(), late)))
    assert report.verdict is Verdict.UNKNOWN
    assert report.top is not None
    assert report.top.check == ID
