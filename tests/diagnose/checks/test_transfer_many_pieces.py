"""transfer/many-pieces: posting takes longer than the bytes of a transfer ask for."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, one, sound, view

ID = "transfer/many-pieces"


def posted(post: Points, took: Points = (0.02, 0.9), more: Given | None = None) -> Given:
    own: dict[str, Points] = {"kv_transfer_post_seconds.mean": post, "kv_transfer_seconds.mean": took}
    return but(but(sound(), {"decode-0": own}), more or {})


@pytest.mark.parametrize(("now", "fires"), [(0.00399, False), (0.00401, True)])
def test_four_times_as_long_as_before(now: float, fires: bool) -> None:
    found = ask(ID, view(series=posted((0.001, now))))
    assert causes(found) == (["config-asymmetry"] if fires else [])
    assert bool(causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize("took", [(0.02, 0.039), (0.5, 0.9), (0.02, 0.049)])
def test_transfers_that_nobody_feels_longer_are_no_matter(took: Points) -> None:
    assert causes(ask(ID, view(series=posted((0.001, 0.02), took)))) == []


def test_larger_transfers_take_longer_to_post() -> None:
    larger = {"decode-0": {"kv_transfer_bytes": (240e9, 600e9), "kv_transfer_seconds.rate": 2.0}}
    assert causes(ask(ID, view(series=posted((0.001, 0.01), more=larger)))) == []
    assert causes(ask(ID, view(series=posted((0.001, 0.03), more=larger)))) == ["config-asymmetry"]


def test_without_the_time_to_post_it_says_nothing() -> None:
    assert ask(ID, view(series=posted(None))) == ()


def test_the_receiver_is_named() -> None:
    assert [str(s) for s in one(ask(ID, view(series=posted((0.001, 0.02))))).scopes] == ["decode-0"]


def test_report() -> None:
    slow = {"decode-0": {"kv_transfer_bandwidth.mean": (5e9, 0.1e9)}, "client": {"ttft_seconds.p95": (0.4, 1.8)}}
    report = golden(ID, view(series=posted((0.001, 0.3), more=slow)))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("config-asymmetry", ID)
    assert "transport-fallback-slow" in [r.cause for r in report.ruled_out]
