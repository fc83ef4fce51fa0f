"""decode/batch-cap: a flat batch below what ran before, while requests wait and steps are no slower."""

from __future__ import annotations

import pytest

from pdops.model.report import Verdict
from pdops.model.view import View
from tests.diagnose.build import Points, ask, causes, golden, one, sound, steps, view
from tests.diagnose.build import but as put

ID = "decode/batch-cap"


def capped(
    running: Points = (16.0, 4.0),
    waiting: float = 9.0,
    gap_s: float = 0.02,
    decode: int = 1,
    facts: str = "",
    usage: float = 0.6,
) -> View:
    mine = {
        "running_requests": running,
        "queue_depth_capacity": (0.0, waiting),
        "itl_seconds.mean": (0.02, gap_s),
        "kv_cache_usage": (0.4, usage),
    }
    client = {"client": {"ttft_seconds.p95": (0.4, 5.0)}}
    known = {"decode-0": {"max_num_seqs": facts}} if facts else {}
    workers = ("prefill-0", *(f"decode-{i}" for i in range(decode)))
    return view(workers=workers, series=put(put(sound(1, decode), client), {"decode-0": mine}), facts=known)


@pytest.mark.parametrize(("now", "fires"), [(12.9, False), (12.7, True)])
def test_a_fifth_below_what_ran_before(now: float, fires: bool) -> None:
    assert causes(ask(ID, capped((16.0, now)))) == (["batch-cap-too-low"] if fires else [])


def test_a_batch_that_moves_stands_at_no_limit() -> None:
    moving = [(t, v if i % 2 else v / 2) for i, (t, v) in enumerate(steps(16.0, 4.0))]
    assert causes(ask(ID, capped(moving))) == []


@pytest.mark.parametrize(("waiting", "fires"), [(1.0, False), (1.1, True)])
def test_somebody_must_wait(waiting: float, fires: bool) -> None:
    assert bool(causes(ask(ID, capped(waiting=waiting)))) is fires


def test_slower_steps_are_another_fault() -> None:
    assert causes(ask(ID, capped(gap_s=0.03))) == []


def test_one_worker_of_two_is_not_the_pool() -> None:
    assert causes(ask(ID, capped(decode=2))) == []


def test_the_limit_as_configured_speaks_for_it() -> None:
    assert "limit" in {w.group for w in one(ask(ID, capped(facts="4"))).for_}
    assert causes(ask(ID, capped(facts="64"))) == []


@pytest.mark.parametrize(("usage", "facts", "fires"), [(0.9, "", True), (0.91, "", False), (0.91, "4", True)])
def test_full_kv_holds_a_batch_down_too_unless_the_limit_is_read(usage: float, facts: str, fires: bool) -> None:
    assert bool(causes(ask(ID, capped(usage=usage, facts=facts)))) is fires


def test_report() -> None:
    report = golden(ID, capped(facts="4", usage=0.92))
    assert (report.verdict, report.hypotheses[0].cause) == (Verdict.FAULT, "batch-cap-too-low")
    assert "decode-kv-exhaustion" not in [h.cause for h in report.hypotheses]


def test_a_batch_drains_to_a_limit_that_was_just_set() -> None:
    draining = [(t, 12.0 if -45.0 > t > -60.0 else v) for t, v in steps(16.0, 4.0)]
    assert causes(ask(ID, capped(draining))) == ["batch-cap-too-low"]
