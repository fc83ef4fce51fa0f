"""decode/rank-imbalance: one rank is given too much, and stops the others when it is full."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, ask, but, causes, golden, groups, one, sound, view

ID = "decode/rank-imbalance"


def ranks(*usage: float, itl: float = 0.02) -> Given:
    by_rank = {f"kv_cache_usage[rank={i}]": v for i, v in enumerate(usage)}
    changes: Given = {
        "decode-0": {**by_rank, "kv_cache_usage": max(usage, default=0.4)},
        "client": {"itl_seconds.p95": (0.02, itl)},
    }
    return but(sound(), changes)


@pytest.mark.parametrize(("fullest", "fires"), [(0.6, False), (0.61, True)])
def test_half_as_much_again_as_the_mean(fullest: float, fires: bool) -> None:
    rest = (4 * 0.4 - 0.6) / 3
    found = ask(ID, view(series=ranks(fullest, rest, rest, rest)))
    assert causes(found) == (["router-imbalance"] if fires else [])
    assert bool(causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize(("fullest", "fires"), [(0.5, False), (0.51, True)])
def test_it_matters_from_half_a_pool_on(fullest: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=ranks(fullest, 0.1, 0.1, 0.1))))) is fires


@pytest.mark.parametrize(("fullest", "full"), [(0.9, False), (0.91, True)])
def test_a_full_rank_is_exhaustion(fullest: float, full: bool) -> None:
    found = ask(ID, view(series=ranks(fullest, 0.2, 0.2, 0.2)))
    assert ("decode-kv-exhaustion" in causes(found)) is full


def test_the_rank_is_named() -> None:
    found = one(ask(ID, view(series=ranks(0.2, 0.2, 0.8, 0.2))))
    assert found.for_[0].evidence.signal == "kv_cache_usage[rank=2]"
    assert found.for_[0].evidence.unit == "ratio"
    assert "rank 2" in found.next[0]


def test_long_token_gaps_support_it() -> None:
    assert "itl" in groups(one(ask(ID, view(series=ranks(0.8, 0.1, 0.1, 0.1, itl=0.2)))))
    assert "itl" not in groups(one(ask(ID, view(series=ranks(0.8, 0.1, 0.1, 0.1)))))


def test_fewer_than_two_ranks_say_nothing() -> None:
    assert ask(ID, view(series=ranks())) == ()
    assert ask(ID, view(series=ranks(0.9))) == ()


def test_report() -> None:
    report = golden(ID, view(series=ranks(0.95, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, itl=0.3)))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("decode-kv-exhaustion", ID)
