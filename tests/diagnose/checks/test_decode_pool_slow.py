"""decode/pool-slow: longer gaps than the batch explains, on most of the workers."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from pdops.model.view import View
from tests.diagnose.build import ask, but, causes, golden, histogram, one, sound, view

ID = "decode/pool-slow"


def pool(now_s: list[float], running: float = 8.0, usage: float = 0.4, n: int = 500) -> View:
    """Return decode workers with 20 ms gaps before and these since; the batch was 8."""
    series: dict[str, dict[str, object]] = {
        f"decode-{i}": {
            "itl_seconds": histogram([0.01, 1.0], {0.02: 1000}, {s: n}),
            "itl_seconds.mean": None,
            "running_requests": (8.0, running),
            "kv_cache_usage": (0.4, usage),
        }
        for i, s in enumerate(now_s)
    }
    client = {"client": {"itl_seconds.p95": (0.02, 0.2)}}
    workers = ("prefill-0", *series)
    return view(workers=workers, series=but(but(sound(1, len(now_s)), client), series))  # type: ignore[arg-type]


@pytest.mark.parametrize(("gap_s", "fires"), [(0.029, False), (0.031, True)])
def test_against_its_own_past(gap_s: float, fires: bool) -> None:
    assert causes(ask(ID, pool([gap_s]))) == (["gpu-throttle"] if fires else [])


@pytest.mark.parametrize(("gap_s", "fires"), [(0.059, False), (0.061, True)])
def test_a_batch_twice_as_large_may_double_the_gap(gap_s: float, fires: bool) -> None:
    assert bool(causes(ask(ID, pool([gap_s], running=16.0)))) is fires
    assert bool(causes(ask(ID, pool([gap_s], usage=0.8)))) is fires


def test_half_of_the_workers_are_slow_workers_and_no_slow_pool() -> None:
    found = one(ask(ID, pool([0.1, 0.1, 0.02, 0.02])))
    assert (found.cause, [str(s) for s in found.scopes]) == ("decode-slow-worker", ["decode-0", "decode-1"])
    assert [str(s) for s in one(ask(ID, pool([0.1, 0.1, 0.1, 0.02]))).scopes] == ["pool decode"]


def test_where_the_others_are_hardly_faster_nobody_is_singled_out() -> None:
    found = ask(ID, pool([0.031, 0.029, 0.029, 0.029]))
    assert (causes(found), causes(found, Status.CLEAR)) == ([], ["gpu-throttle"])


def test_few_gaps_are_not_judged() -> None:
    assert ask(ID, pool([0.1], n=49)) == ()


def test_it_looks_only_while_clients_wait() -> None:
    assert ask(ID, view(series=sound())) == ()


def test_report() -> None:
    report = golden(ID, pool([0.2, 0.2]))
    assert (report.verdict, report.hypotheses[0].cause) == (Verdict.FAULT, "gpu-throttle")
