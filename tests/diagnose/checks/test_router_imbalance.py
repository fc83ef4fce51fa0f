"""router/imbalance: uneven traffic, or even traffic to workers of uneven speed."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.frame import Event, EventKind
from pdops.model.report import Verdict
from tests.diagnose.build import (
    NOW_S,
    STEP_S,
    Given,
    ask,
    but,
    causes,
    golden,
    groups,
    one,
    restart,
    sound,
    steps,
    view,
)

ID = "router/imbalance"
FOUR = ("prefill-0", *(f"decode-{i}" for i in range(4)))


def shared(first: float, rest: float = 100.0, running: float | None = None, signal: str = "worker_selection") -> Given:
    given: dict[str, dict[str, object]] = {f"decode-{i}": {signal: (rest, rest)} for i in range(1, 4)}
    given["decode-0"] = {signal: (rest, first)}
    if running is not None:
        given["decode-0"]["running_requests"] = running
    return but(sound(1, 4), given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("first", "fires"), [(244.0, False), (246.0, True)])
def test_eighteen_tenths_of_the_mean_are_skew(first: float, fires: bool) -> None:
    """With 245.5 on one and 100 on three others the greatest is 1.8 times the mean."""
    found = ask(ID, view(workers=FOUR, series=shared(first)))
    assert causes(found) == (["router-imbalance"] if fires else [])


@pytest.mark.parametrize(("first", "even"), [(143.0, True), (145.0, False)])
def test_below_thirteen_tenths_it_is_even(first: float, even: bool) -> None:
    assert bool(causes(ask(ID, view(workers=FOUR, series=shared(first))), Status.CLEAR)) is even


@pytest.mark.parametrize(("rest", "told"), [(7.0, False), (8.0, True)])
def test_few_requests_say_nothing(rest: float, told: bool) -> None:
    """Twenty per worker are needed: 59 and three of 7 are 80 in all, three of 8 more than that."""
    found = ask(ID, view(workers=FOUR, series=shared(58.0, rest)))
    assert bool(causes(found)) is told


@pytest.mark.parametrize("signal", ["request_success", "generated_tokens"])
def test_finished_work_stands_for_traffic(signal: str) -> None:
    given = shared(5_000.0, 500.0, signal=signal)
    assert "router-imbalance" in causes(ask(ID, view(workers=FOUR, series=given)))


def test_uneven_load_without_traffic_decides_nothing() -> None:
    given = but(sound(1, 4), {"decode-0": {"running_requests": 60.0}})
    found = ask(ID, view(workers=FOUR, series=given))
    assert one(found).cap < 0.5
    assert one(found, Status.UNKNOWN).missing[0].signal == "worker_selection"


def test_even_traffic_to_a_slow_worker_is_no_imbalance() -> None:
    found = one(ask(ID, view(workers=FOUR, series=shared(100.0, running=60.0))))
    assert [w.group for w in found.against] == ["even"]


def test_idle_workers_that_just_started_explain_it() -> None:
    found = one(ask(ID, view(workers=FOUR, series=shared(900.0), events=[restart("decode-2", -100)])))
    assert [w.group for w in found.against] == ["new"]


@pytest.mark.parametrize(("hits", "hot"), [(24_900, False), (25_100, True)])
def test_one_prefix_draws_the_requests(hits: float, hot: bool) -> None:
    """The others find 30 % of 50 000 tokens, so 20 points more are 25 000."""
    workers = ("decode-0", *(f"prefill-{i}" for i in range(4)))
    given = {
        f"prefill-{i}": {
            "worker_selection": (100, 900 if i == 0 else 100),
            "prefix_cache_hits": (30_000, hits if i == 0 else 15_000),
            "prefix_cache_queries": (100_000, 50_000),
        }
        for i in range(4)
    }
    found = ask(ID, view(workers=workers, series=but(sound(4, 1), given)))
    assert ("prefix-hotspot" in causes(found)) is hot
    assert bool(one(found, cause="router-imbalance").against) is hot


def test_one_queue_while_others_idle() -> None:
    given = but(shared(900.0), {"decode-0": {"queue_depth": 9.0}})
    assert "queue_depth" in groups(one(ask(ID, view(workers=FOUR, series=given))))


def test_pool_totals_and_single_workers_say_nothing() -> None:
    assert ask(ID, view(series={"pool:decode": {"running_requests": 60.0}})) == ()
    assert ask(ID, view(series=sound())) == ()


def test_report() -> None:
    more = {"decode-0": {"running_requests": 40.0, "queue_depth": 8.0}, "client": {"itl_seconds.p95": (0.02, 0.09)}}
    report = golden(ID, view(workers=FOUR, series=but(shared(900.0, 40.0), more)))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("router-imbalance", ID)
    assert "decode-undersized" in [r.cause for r in report.ruled_out]


def herd(now: float, before: float = 8.0) -> Given:
    """Return four workers of which each in turn holds `now` requests and the others 4; before, the one held `before`."""
    given: dict[str, dict[str, object]] = {}
    for place in range(4):
        points = [
            (t, (now if t > -NOW_S else before) if int(t / STEP_S) % 4 == place else 4.0) for t, _ in steps(1.0, 1.0)
        ]
        given[f"decode-{place}"] = {"running_requests": points, "worker_selection": (200.0, 100.0)}
    return but(sound(1, 4), given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("now", "fires"), [(8.0, False), (30.0, True)])
def test_all_to_one_at_each_moment_is_uneven_though_all_get_the_same(now: float, fires: bool) -> None:
    found = ask(ID, view(workers=FOUR, series=herd(now)))
    assert causes(found) == (["router-imbalance"] if fires else [])
    assert not fires or [str(s) for s in one(found).scopes] == ["pool decode"]


def test_a_pool_that_was_never_even_does_not_herd() -> None:
    assert causes(ask(ID, view(workers=FOUR, series=herd(30.0, 25.0)))) == []


@pytest.mark.parametrize(("gets", "waits", "fires"), [(10.0, 9.0, True), (60.0, 9.0, False), (10.0, 0.0, False)])
def test_a_worker_left_out_while_others_queue(gets: float, waits: float, fires: bool) -> None:
    more = {
        "decode-3": {"worker_selection": (100.0, gets), "running_requests": 0.1},
        "decode-1": {"queue_depth": waits},
    }
    found = ask(ID, view(workers=FOUR, series=but(shared(100.0), more)))
    assert any("idle" in groups(f) for f in found) is fires


def test_a_worker_that_is_being_drained_is_not_left_out() -> None:
    more = {"decode-3": {"worker_selection": (100.0, 10.0), "running_requests": 0.1}, "decode-1": {"queue_depth": 9.0}}
    event = Event(t_s=-60.0, kind=EventKind.SCALE_IN, worker="decode-3")
    found = ask(ID, view(workers=FOUR, series=but(shared(100.0), more), events=[event]))
    assert not any("idle" in groups(f) for f in found)


@pytest.mark.parametrize("kind", [EventKind.SCALE_OUT, EventKind.ROLLOUT, EventKind.SCALE_IN])
def test_a_worker_that_joins_leaves_or_was_replaced_is_not_compared(kind: EventKind) -> None:
    planned = [Event(t_s=-60.0, kind=kind, worker="decode-0")]
    assert causes(ask(ID, view(workers=FOUR, series=shared(400.0), events=planned))) == []


def test_two_workers_of_which_one_holds_all_at_each_moment_may_do_so_by_chance() -> None:
    two = {k: v for k, v in herd(30.0).items() if k not in ("decode-2", "decode-3")}
    assert causes(ask(ID, view(workers=("prefill-0", "decode-0", "decode-1"), series=two))) == []


def test_tokens_of_a_few_requests_tell_no_skew() -> None:
    few = but(shared(1000.0, signal="generated_tokens"), {"client": {"request_success": (60, 30)}})
    assert causes(ask(ID, view(workers=FOUR, series=few))) == []


@pytest.mark.parametrize(("behind", "fires"), [(9.0, True), (20.0, False)])
def test_who_is_chosen_because_the_others_are_full_is_no_fault_of_the_router(behind: float, fires: bool) -> None:
    waits = {f"decode-{i}": {"queue_depth_capacity": behind if i else 10.0} for i in range(4)}
    assert bool(causes(ask(ID, view(workers=FOUR, series=but(shared(900.0), waits))))) is fires


@pytest.mark.parametrize(("pool", "fires"), [("decode", False), ("prefill", True)])
def test_a_pool_that_was_regrouped_is_not_compared_with_what_it_was(pool: str, fires: bool) -> None:
    left = Event(t_s=-60.0, kind=EventKind.SCALE_IN, worker=f"{pool}-9", pool=pool)
    assert bool(causes(ask(ID, view(workers=FOUR, series=herd(30.0), events=[left])))) is fires
