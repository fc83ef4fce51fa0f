"""transfer/waits-unbounded: a deferred queue that grows where nothing tells what it waits for."""

from __future__ import annotations

import pytest

from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "transfer/waits-unbounded"


def waiting(deferred: Points = (0, 9), **more: Points) -> Given:
    blind: dict[str, Points] = {
        "queue_depth_deferred": deferred,
        "transfer_queue_depth": None,
        "kv_transfer_bytes": None,
        "kv_transfer_seconds.mean": None,
        "kv_transfer_bandwidth.mean": None,
    }
    return but(sound(), {"decode-0": blind | more})


@pytest.mark.parametrize(
    ("deferred", "fires"), [((0, 2.0), False), ((0, 2.1), True), ((6, 9.0), False), ((6, 9.1), True)]
)
def test_more_than_two_and_half_as_many_again(deferred: Points, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=waiting(deferred))))) is fires


@pytest.mark.parametrize("told", [{"transfer_queue_depth": (0, 0)}, {"kv_transfer_bytes": (1e9, 0)}])
def test_where_stages_or_bytes_are_told_others_say_more(told: dict[str, Points]) -> None:
    assert ask(ID, view(series=waiting(**told))) == ()


def test_timeouts_have_no_vote_of_their_own() -> None:
    given = but(waiting(), {"client": {"request_timeouts": (0, 20)}})
    found = one(ask(ID, view(series=given)))
    assert groups(found) == {"waits"}
    assert len(found.for_) == 2


def test_report() -> None:
    report = golden(ID, view(series=but(waiting(), {"client": {"request_timeouts": (0, 20)}})))
    assert report.verdict is Verdict.UNKNOWN
    assert report.top is not None
    assert report.top.cause == "no-timeout-hang"
    assert any("request id" in step for step in report.top.next)
