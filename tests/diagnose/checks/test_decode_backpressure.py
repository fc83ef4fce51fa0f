"""decode/backpressure: full prefill workers without a queue of prompts, and decode behind."""

from __future__ import annotations

import pytest

from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "decode/backpressure"


def held(
    usage: Points = (0.4, 0.95), depth: Points = 0.5, waiting: Points = (0, 12), more: Given | None = None
) -> Given:
    given = {
        "prefill-0": {"kv_cache_usage": usage, "queue_depth": depth},
        "decode-0": {"queue_depth_capacity": waiting},
    }
    return but(but(sound(), given), more or {})


def test_decode_is_behind() -> None:
    found = one(ask(ID, view(series=held())))
    assert found.cause == "backpressure-to-prefill"
    assert groups(found) == {"held", "no queue", "decode"}
    assert "scale-out-prefill" in {d.action for d in found.do_not}


def test_with_room_on_decode_it_is_silent() -> None:
    assert ask(ID, view(series=held(waiting=0.0))) == ()


@pytest.mark.parametrize(("usage", "fires"), [(0.85, False), (0.86, True)])
def test_how_full(usage: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=held((0.4, usage)))))) is fires


@pytest.mark.parametrize(("depth", "fires"), [(1.9, True), (2.0, False)])
def test_prompts_that_wait_are_another_story(depth: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=held(depth=depth))))) is fires


def test_finished_prefills_that_nobody_fetched_support_it() -> None:
    found = one(ask(ID, view(series=held(more={"prefill-0": {"kv_exports_outstanding": (2, 30)}}))))
    assert "finished" in groups(found)


def test_longer_prompts_speak_against_it() -> None:
    assert one(ask(ID, view(series=held(more={"prefill-0": {"prompt_length.mean": (1000, 2000)}})))).against


def test_expired_leases_are_told_elsewhere() -> None:
    assert ask(ID, view(series=held(more={"prefill-0": {"kv_transfer_expired": (0, 3)}}))) == ()


def test_without_decode_s_queues_it_is_silent() -> None:
    assert ask(ID, view(series=held(more={"decode-0": dict.fromkeys(sound()["decode-0"])}))) == ()


def test_report() -> None:
    late = {"client": {"ttft_seconds.p95": (0.4, 5.0)}}
    report = golden(ID, view(series=held(more=late)))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert report.top.cause == "backpressure-to-prefill"
