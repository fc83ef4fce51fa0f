"""decode/itl-high: over its promise or history, and by the pool or by one worker."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.cluster import Slo
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, histogram, one, sound, view

ID = "decode/itl-high"
FIVE = ("prefill-0", *(f"decode-{i}" for i in range(5)))


def itl(client: Points, more: Given | None = None, decode: int = 1) -> Given:
    return but(but(sound(1, decode), {"client": {"itl_seconds.p95": client}}), more or {})


@pytest.mark.parametrize(("value", "fires"), [(0.05, False), (0.051, True)])
def test_the_promise(value: float, fires: bool) -> None:
    found = ask(ID, view(series=itl((0.02, value))))
    assert causes(found) == (["decode-undersized"] if fires else [])
    assert bool(causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize(("value", "fires"), [(0.03, False), (0.031, True)])
def test_history_where_nothing_is_promised(value: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=itl((0.02, value)), slo=Slo())))) is fires


def test_nothing_to_compare_with_is_not_clear() -> None:
    found = one(ask(ID, view(series=itl([(-30.0, 0.4), (0.0, 0.4)]), slo=Slo())), Status.UNKNOWN)
    assert (found.cause, bool(found.missing[0].fix)) == ("decode-undersized", True)


def test_a_lower_bound_under_the_promise_is_not_clear() -> None:
    beyond = {"client": {"itl_seconds.p95": None, "itl_seconds": histogram([0.01, 0.04], {}, {0.5: 100})}}
    found = one(ask(ID, view(series=but(sound(), beyond))), Status.UNKNOWN)
    assert "at least" in found.missing[0].why


def test_without_itl_it_says_nothing() -> None:
    assert ask(ID, view(series=itl(None))) == ()


@pytest.mark.parametrize(("running", "crowded"), [(10.4, False), (10.5, True)])
def test_a_batch_a_third_larger_speaks_for_the_pool(running: float, crowded: bool) -> None:
    given = itl((0.02, 0.2), {"decode-0": {"running_requests": (8.0, running)}})
    assert ("batch" in groups(one(ask(ID, view(series=given))))) is crowded


@pytest.mark.parametrize(
    ("signal", "below", "above", "group"),
    [("queue_depth_capacity", 0.5, 0.6, "waiting"), ("kv_cache_usage", 0.8, 0.81, "full")],
)
def test_waiting_and_full_pools_speak_for_the_pool(signal: str, below: float, above: float, group: str) -> None:
    for value, there in ((below, False), (above, True)):
        given = itl((0.02, 0.2), {"decode-0": {signal: value}})
        assert (group in groups(one(ask(ID, view(series=given))))) is there


@pytest.mark.parametrize(("mean", "slow"), [(0.03, False), (0.031, True)])
def test_one_worker_half_as_slow_again_as_its_peers(mean: float, slow: bool) -> None:
    given = itl((0.02, 0.2), {"decode-3": {"itl_seconds.mean": mean}}, decode=5)
    found = ask(ID, view(workers=FIVE, series=given))
    assert ("decode-slow-worker" in causes(found)) is slow
    if slow:
        assert [str(s) for s in one(found, cause="decode-slow-worker").scopes] == ["decode-3"]
        assert one(found, cause="decode-undersized").against


def test_three_peers_are_too_few_to_call_a_worker_slow() -> None:
    given = itl((0.02, 0.2), {"decode-3": {"itl_seconds.mean": 0.2}}, decode=4)
    assert "decode-slow-worker" not in causes(ask(ID, view(workers=FIVE[:5], series=given)))


@pytest.mark.parametrize(
    ("signal", "before", "now"), [("running_requests", 10.0, 6.9), ("generated_tokens", 20e3, 6.9e3)]
)
def test_a_pool_that_does_less_than_before_is_held_up_not_too_small(signal: str, before: float, now: float) -> None:
    given = itl((0.02, 0.2), {"decode-0": {signal: (before, now)}})
    found = one(ask(ID, view(series=given)))
    assert [w.evidence.signal.partition(".")[0] for w in found.against] == [signal]
    more = itl((0.02, 0.2), {"decode-0": {signal: (before, now * 1.03)}})
    assert one(ask(ID, view(series=more))).against == ()


@pytest.mark.parametrize(("waiting", "more"), [(0.0, False), (3.0, True)])
def test_workers_are_proposed_only_for_a_crowded_pool(waiting: float, more: bool) -> None:
    found = one(ask(ID, view(series=itl((0.02, 0.2), {"decode-0": {"queue_depth_capacity": waiting}}))))
    assert ("scale-out-decode" in found.runbooks) is more


def test_report() -> None:
    load = {"running_requests": (8.0, 30.0), "queue_depth_capacity": (0, 6.0), "itl_seconds.mean": (0.02, 0.09)}
    report = golden(ID, view(series=itl((0.02, 0.14), {"decode-0": load})))
    assert report.verdict is Verdict.OVERLOAD
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("decode-undersized", ID)


@pytest.mark.parametrize(("gap_s", "named"), [(0.049, []), (0.2, ["decode-4"])])
def test_a_worker_too_slow_for_the_promise_hides_in_a_percentile_of_gaps(gap_s: float, named: list[str]) -> None:
    given = itl(0.04, {"decode-4": {"itl_seconds.mean": gap_s}}, decode=5)
    found = ask(ID, view(workers=FIVE, series=given))
    assert [str(s) for f in found if f.status is Status.FIRED for s in f.scopes] == named
    assert causes(found, Status.CLEAR) == ["decode-undersized"]
