"""client/output-inflation: longer outputs, and what they take from decode."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "client/output-inflation"


def outputs(length: Points, kv: Points = (0.4, 0.9), more: Given | None = None) -> Given:
    return but(but(sound(), {"decode-0": {"output_length.mean": length, "kv_cache_usage": kv}}), more or {})


@pytest.mark.parametrize(("length", "fires"), [(300.0, False), (301.0, True)])
def test_half_as_long_again(length: float, fires: bool) -> None:
    found = ask(ID, view(series=outputs((200.0, length))))
    assert causes(found) == (["output-inflation"] if fires else [])
    assert bool(causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize(("kv", "fires"), [(0.5, False), (0.51, True)])
def test_ten_points_more_kv_are_what_it_eats(kv: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=outputs((200.0, 900.0), (0.4, kv)))))) is fires


@pytest.mark.parametrize(("kv", "fires"), [(0.8, False), (0.81, True)])
def test_or_a_pool_that_was_full_already(kv: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=outputs((200.0, 900.0), kv))))) is fires


@pytest.mark.parametrize(("running", "fires"), [(10.4, False), (10.5, True)])
def test_or_a_third_more_slots(running: float, fires: bool) -> None:
    given = outputs((200.0, 900.0), 0.4, {"decode-0": {"running_requests": (8.0, running)}})
    assert bool(causes(ask(ID, view(series=given)))) is fires


def test_longer_outputs_that_fit_are_cleared() -> None:
    found = one(ask(ID, view(series=outputs((200.0, 900.0), 0.4))), Status.CLEAR)
    assert "fit" in found.because


def test_more_requests_speak_against_it() -> None:
    given = outputs((200.0, 900.0), more={"prefill-0": {"prompt_tokens": (240_000, 200_000)}})
    assert [w.group for w in one(ask(ID, view(series=given))).against] == ["arrivals"]


def test_preemption_counts_as_eaten_kv() -> None:
    given = outputs((200.0, 900.0), 0.4, {"decode-0": {"preemptions": (0, 5)}})
    assert groups(one(ask(ID, view(series=given)))) == {"length", "kv"}


def test_without_lengths_it_says_nothing() -> None:
    assert ask(ID, view(series=outputs(None))) == ()


def test_pool_totals_are_enough() -> None:
    given = {"pool:decode": {"output_length.mean": (200.0, 900.0), "kv_cache_usage": 0.95}}
    assert [str(s) for s in one(ask(ID, view(series=given))).scopes] == ["pool decode"]


def test_report() -> None:
    more = {
        "decode-0": {"running_requests": (8.0, 30.0), "preemptions": (0, 12), "itl_seconds.mean": (0.02, 0.08)},
        "client": {"itl_seconds.p95": (0.02, 0.12)},
    }
    report = golden(ID, view(series=outputs((200.0, 2100.0), (0.4, 0.97), more)))
    assert report.verdict is Verdict.OVERLOAD
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("output-inflation", ID)
    assert "decode-kv-exhaustion" in [r.cause for r in report.ruled_out]


@pytest.mark.parametrize(("ends", "fires"), [(600, True), (470, False)])
def test_where_fewer_end_they_are_longer_by_themselves(ends: int, fires: bool) -> None:
    """Of 1200 in ten minutes 600 are as many in five; with fewer only more than twice as long counts."""
    fewer = {"client": {"request_success": (1200, ends)}}
    assert bool(causes(ask(ID, view(series=but(outputs((200.0, 390.0)), fewer))))) is fires
    assert causes(ask(ID, view(series=but(outputs((200.0, 410.0)), fewer)))) == ["output-inflation"]


@pytest.mark.parametrize(("made", "fires"), [(34_000, False), (60_000, True)])
def test_outputs_that_have_not_ended_are_counted_by_the_tokens_made(made: float, fires: bool) -> None:
    """In ten minutes 200 ended with 200 tokens each; in five 100 end that long, while those still made are longer."""
    more: Given = {"decode-0": {"generated_tokens": (40_000, made), "request_success": (200, 100)}}
    found = ask(ID, view(series=outputs((200.0, 200.0), more=more)))
    assert bool(causes(found)) is fires
