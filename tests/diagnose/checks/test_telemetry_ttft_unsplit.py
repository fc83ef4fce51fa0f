"""telemetry/ttft-unsplit: what to measure next while slow first tokens have no measured reason."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, one, sound, view

ID = "telemetry/ttft-unsplit"


def slow(ttft: Points = (0.4, 2.0), more: Given | None = None) -> Given:
    return but(but(sound(), {"client": {"ttft_seconds.p95": ttft}}), more or {})


@pytest.mark.parametrize(("ttft", "fires"), [(1.0, False), (1.01, True)])
def test_only_while_first_tokens_are_slow(ttft: float, fires: bool) -> None:
    assert bool(ask(ID, view(series=slow((0.4, ttft))))) is fires


def test_the_transfer_comes_first() -> None:
    found = one(ask(ID, view(series=slow(more={"decode-0": {"kv_transfer_seconds.mean": None}}))))
    assert found.verdict is Verdict.UNKNOWN
    assert "transfer" in found.next[0]


@pytest.mark.parametrize(("queue", "fires"), [(2.0, True), (2.1, False)])
def test_a_queue_at_prefill_comes_first(queue: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=slow(more={"prefill-0": {"queue_depth": queue}}))))) is fires


def test_everything_measured_is_clear() -> None:
    pair = {"pair:prefill-0>decode-0": {"handoff_seconds.mean": 0.15}}
    assert causes(ask(ID, view(series=slow(more=pair))), Status.CLEAR) == ["telemetry-gap"]


def test_without_ttft_it_says_nothing() -> None:
    assert ask(ID, view(series=slow(None))) == ()


def test_report() -> None:
    dark = {"decode-0": {"kv_transfer_seconds.mean": None, "kv_transfer_bandwidth.mean": None}}
    report = golden(ID, view(series=slow(more=dark)))
    assert report.verdict is Verdict.UNKNOWN
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("telemetry-gap", ID)
    assert report.top.confidence < 0.5
