"""capacity/autoscaler: flapping, blind, or on the wrong pool."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.frame import Event, EventKind
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "capacity/autoscaler"
TWO = ("prefill-0", "prefill-1", "decode-0", "decode-1")


def sizes(*values: float, until: float = 0.0) -> list[tuple[float, float]]:
    """Return the values spread evenly over the last fifteen minutes."""
    step = (until + 900.0) / (len(values) - 1)
    return [(-900.0 + i * step, v) for i, v in enumerate(values)]


def scaled(wanted: Points, pool: str = "decode", there: Points = None, more: Given | None = None) -> Given:
    own = {"pool_replicas_wanted": wanted, "pool_replicas": there}
    return but(but(sound(2, 2), {f"pool:{pool}": own}), more or {})


@pytest.mark.parametrize(("values", "fires"), [((2, 3, 4, 4), False), ((2, 3, 4, 5), True), ((2, 4, 2, 4), True)])
def test_three_changes_under_a_steady_load(values: tuple[float, ...], fires: bool) -> None:
    found = ask(ID, view(workers=TWO, series=scaled(sizes(*values))))
    assert causes(found) == (["autoscaler-flap"] if fires else [])
    assert bool(causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize(("tokens", "steady"), [(144_000, True), (146_000, False)])
def test_a_load_that_changes_asks_for_changes(tokens: float, steady: bool) -> None:
    load = {f"prefill-{i}": {"prompt_tokens": (240_000, tokens)} for i in (0, 1)}
    found = one(ask(ID, view(workers=TWO, series=scaled(sizes(2, 4, 2, 4), more=load))))
    assert ("load" in groups(found)) is steady
    assert bool(found.against) is not steady


def test_without_arrivals_changes_are_only_a_hint() -> None:
    nothing = {"client": {"request_success": None}} | {f"prefill-{i}": {"prompt_tokens": None} for i in (0, 1)}
    found = one(ask(ID, view(workers=TWO, series=scaled(sizes(2, 3, 4, 5), more=nothing))))
    assert groups(found) == {"changes"}


def test_scale_events_stand_for_sizes() -> None:
    events = [Event(t_s=-800 + 200 * i, kind=EventKind.SCALE_OUT, pool="decode") for i in range(3)]
    assert causes(ask(ID, view(workers=TWO, series=sound(2, 2), events=events))) == ["autoscaler-flap"]


@pytest.mark.parametrize(("until", "gap"), [(-60.0, False), (-61.0, True)])
def test_no_wanted_size_for_a_minute(until: float, gap: bool) -> None:
    found = ask(ID, view(workers=TWO, series=scaled(sizes(2, 2, 2, 2, until=until))))
    assert ("autoscaler-metrics-gap" in causes(found)) is gap


def test_sizes_held_after_the_load_went_are_only_a_hint() -> None:
    gone = {f"prefill-{i}": {"prompt_tokens": (240_000, 0)} for i in (0, 1)}
    found = one(ask(ID, view(workers=TWO, series=scaled(sizes(7, 7, 7, 7), more=gone))))
    assert (found.cause, groups(found)) == ("autoscaler-metrics-gap", {"load"})
    assert len(found.for_) == 1


@pytest.mark.parametrize(("queue", "wrong"), [(1.0, False), (1.1, True)])
def test_prefill_grew_while_decode_is_short(queue: float, wrong: bool) -> None:
    short = {f"decode-{i}": {"queue_depth_capacity": queue} for i in (0, 1)}
    found = ask(ID, view(workers=TWO, series=scaled((2.0, 5.0), "prefill", more=short)))
    assert causes(found) == (["autoscaler-wrong-signal"] if wrong else [])
    if wrong:
        assert groups(one(found)) == {"grown", "short", "room"}


def test_the_short_pool_that_grows_is_right() -> None:
    short = {f"decode-{i}": {"queue_depth_capacity": 5.0} for i in (0, 1)}
    assert causes(ask(ID, view(workers=TWO, series=scaled((2.0, 5.0), "decode", more=short)))) == []


@pytest.mark.parametrize(("before", "held"), [(6.0, False), (5.9, True)])
def test_a_queue_that_grows_while_the_wanted_size_does_not(before: float, held: bool) -> None:
    short = {f"prefill-{i}": {"queue_depth": (before, 9.0)} for i in (0, 1)}
    found = ask(ID, view(workers=TWO, series=scaled(sizes(2, 2, 2, 2), "prefill", more=short)))
    assert ("autoscaler-wrong-signal" in causes(found)) is held


@pytest.mark.parametrize(("there", "missing"), [((2, 2, 2, 3), True), ((2, 2, 2, 4), False)])
def test_workers_asked_for_that_never_came(there: tuple[float, ...], missing: bool) -> None:
    found = ask(ID, view(workers=TWO, series=scaled(sizes(4, 4, 4, 4), there=sizes(*there))))
    assert ("decode-down" in causes(found)) is missing


def test_without_sizes_or_events_it_says_nothing() -> None:
    assert ask(ID, view(workers=TWO, series=sound(2, 2))) == ()


def test_report() -> None:
    given = scaled(sizes(2, 6, 2, 6, 2, 6, 2), there=sizes(2, 5, 2, 5, 2, 5, 2))
    report = golden(ID, view(workers=TWO, series=given))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("autoscaler-flap", ID)
    assert "ratio-rebalance" in [d.action for d in report.top.do_not]


@pytest.mark.parametrize(("moved", "fires"), [(1, False), (2, True)])
def test_half_of_a_pool_taken_and_given_back_is_no_steady_load(moved: int, fires: bool) -> None:
    """Of four workers; one step down and one up are too few changes else."""
    workers = ("prefill-0", *(f"decode-{i}" for i in range(4)))
    events = [
        Event(t_s=t_s, kind=kind, worker=f"decode-{i}", pool="decode")
        for kind, t_s in ((EventKind.SCALE_IN, -200.0), (EventKind.SCALE_OUT, -60.0))
        for i in range(moved)
    ]
    found = ask(ID, view(workers=workers, series=sound(1, 4), events=events))
    assert causes(found) == (["autoscaler-flap"] if fires else [])
