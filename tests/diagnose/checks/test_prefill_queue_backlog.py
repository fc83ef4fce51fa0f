"""prefill/queue-backlog: a real lack of prefill, KV that is not taken, a burst, or longer prompts."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import NOW_S, Given, Points, ask, but, causes, golden, histogram, one, sound, steps, view

ID = "prefill/queue-backlog"


def queued(depth: Points = (0.2, 9.0), more: Given | None = None) -> Given:
    return but(but(sound(), {"prefill-0": {"queue_depth": depth}}), more or {})


@pytest.mark.parametrize(("depth", "fires"), [(2.0, False), (2.1, True)])
def test_two_waiting_per_worker(depth: float, fires: bool) -> None:
    found = ask(ID, view(series=queued((0.2, depth))))
    assert causes(found) == (["prefill-undersized"] if fires else [])
    assert bool(causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize(("depth", "fires"), [(6.0, False), (6.1, True)])
def test_a_queue_that_was_always_there_has_to_grow_by_half(depth: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=queued((4.0, depth)))))) is fires


def test_a_queue_without_history_counts() -> None:
    assert causes(ask(ID, view(series=queued([(-30.0, 9.0), (0.0, 9.0)])))) == ["prefill-undersized"]


@pytest.mark.parametrize(("usage", "held"), [(0.85, False), (0.86, True)])
def test_finished_kv_that_fills_prefill_points_to_decode(usage: float, held: bool) -> None:
    found = ask(ID, view(series=queued(more={"prefill-0": {"kv_cache_usage": (0.3, usage)}})))
    assert ("backpressure-to-prefill" in causes(found)) is held
    assert bool(one(found, cause="prefill-undersized").against) is held


@pytest.mark.parametrize(("grown", "burst"), [(180_000.0, False), (181_000.0, True)])
def test_half_as_many_tokens_again_are_a_burst(grown: float, burst: bool) -> None:
    found = ask(ID, view(series=queued(more={"prefill-0": {"prompt_tokens": (240_000.0, grown)}})))
    assert ("traffic-burst" in causes(found)) is burst


@pytest.mark.parametrize(("length", "longer"), [(1500.0, False), (1501.0, True)])
def test_half_as_long_prompts_again_are_a_shift(length: float, longer: bool) -> None:
    found = ask(ID, view(series=queued(more={"prefill-0": {"prompt_length.mean": (1000.0, length)}})))
    assert ("workload-shift" in causes(found)) is longer


def test_without_queue_depth_nothing_is_cleared() -> None:
    assert ask(ID, view(series=queued(None))) == ()


def test_one_worker_without_queue_depth_clears_nothing() -> None:
    given = but(sound(2, 1), {"prefill-1": {"queue_depth": None}})
    assert ask(ID, view(workers=("prefill-0", "prefill-1", "decode-0"), series=given)) == ()


def test_a_queue_alone_decides_nothing_while_kv_in_use_is_not_told() -> None:
    found = one(ask(ID, view(series=queued(more={"prefill-0": {"kv_cache_usage": None}}))))
    assert (found.cause, found.cap < 0.5) == ("prefill-undersized", True)
    assert [m.signal for m in found.missing] == ["kv_cache_usage"]


@pytest.mark.parametrize("signal", ["queue_depth_capacity", "queue_depth_deferred"])
@pytest.mark.parametrize(("waiting", "accused"), [(1.0, False), (1.1, True)])
def test_held_kv_accuses_decode_only_when_decode_is_behind(signal: str, waiting: float, accused: bool) -> None:
    more = {"prefill-0": {"kv_cache_usage": (0.3, 0.95)}, "decode-0": {signal: waiting}}
    found = one(ask(ID, view(series=queued(more=more))), cause="backpressure-to-prefill")
    assert (found.cap > 0.5) is accused


def test_pool_totals_are_enough() -> None:
    found = one(ask(ID, view(series={"pool:prefill": {"queue_depth": (0.5, 12.0)}})))
    assert [str(s) for s in found.scopes] == ["pool prefill"]


def test_report() -> None:
    more = {
        "client": {"ttft_seconds.p95": (0.4, 4.0), "request_success": (1200, 620)},
        "prefill-0": {"queue_seconds.mean": (0.05, 3.2)},
    }
    report = golden(ID, view(series=queued((0.2, 14.0), more)))
    assert report.verdict is Verdict.OVERLOAD
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("prefill-undersized", ID)
    assert "scale-out-prefill" in report.top.runbooks


@pytest.mark.parametrize(("refused", "burst"), [(290.0, False), (310.0, True)])
def test_requests_that_are_turned_away_came_too(refused: float, burst: bool) -> None:
    client = {"client": {"request_success": (1200, 600), "request_failure": (0, refused)}}
    assert ("traffic-burst" in causes(ask(ID, view(series=queued(more=client))))) is burst


@pytest.mark.parametrize(("depth", "burst"), [(200.0, False), (320.0, True)])
def test_requests_that_pile_up_came_too(depth: float, burst: bool) -> None:
    """As many are begun as before; the queue grows by what came beyond that, half as much again is 300."""
    begun = histogram([1000.0], {500.0: 1200.0}, {500.0: 600.0})
    rising = [(t, 0.2 if t < -NOW_S else depth * (t + NOW_S) / NOW_S) for t, _ in steps(1.0, 1.0)]
    more = {"prefill-0": {"prompt_length": begun, "prompt_length.mean": None, "prompt_tokens": None}}
    assert ("traffic-burst" in causes(ask(ID, view(series=queued(rising, more))))) is burst


def test_a_queue_is_compared_with_the_past_of_the_same_signal() -> None:
    own = {"queue_depth": [(-900.0, 60.0), (-400.0, 60.0)], "queue_depth_capacity": (2.0, 9.0)}
    assert causes(ask(ID, view(series=but(sound(), {"prefill-0": own})))) == ["prefill-undersized"]


def test_failures_that_were_not_counted_before_are_no_growth() -> None:
    client = {"client": {"request_success": (1200, 600), "request_failure": [(-200.0, 0.0), (0.0, 900.0)]}}
    assert "traffic-burst" not in causes(ask(ID, view(series=queued(more=client))))
