"""router/stale-data: old or missing data of a worker that still gets requests."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import MODERATE, STRONG, Status
from pdops.model.report import Symptom, Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, one, sound, view

ID = "router/stale-data"
THREE = ("prefill-0", "decode-0", "decode-1", "decode-2")


def routed(age: Points, gets: Points = (100, 400)) -> Given:
    given = {f"decode-{i}": {"router_metric_age_seconds": 2.0, "worker_selection": (100, 60)} for i in (1, 2)}
    return but(sound(1, 3), but(given, {"decode-0": {"router_metric_age_seconds": age, "worker_selection": gets}}))


@pytest.mark.parametrize(("age", "fires"), [(15.0, False), (15.1, True)])
def test_older_than_three_slow_refreshes(age: float, fires: bool) -> None:
    found = ask(ID, view(workers=THREE, series=routed((2.0, age))))
    assert causes(found) == (["router-stale-metrics"] if fires else [])
    assert bool(causes(found, Status.CLEAR)) is not fires


def test_no_data_where_its_peers_have_some() -> None:
    found = one(ask(ID, view(workers=THREE, series=routed(None))))
    assert [str(s) for s in found.scopes] == ["decode-0"]


@pytest.mark.parametrize(("gets", "weight"), [(61, STRONG), (59, MODERATE)])
def test_its_share_or_more_is_strong(gets: float, weight: float) -> None:
    found = one(ask(ID, view(workers=THREE, series=routed(200.0, (100, gets)))))
    assert {w.ratio for w in found.for_ if w.group == "traffic"} == {weight}
    assert (Symptom.SKEW in found.symptoms) is (weight == STRONG)


def test_a_worker_that_gets_nothing_is_handled_well() -> None:
    found = ask(ID, view(workers=THREE, series=routed(200.0, (100, 0))))
    assert causes(found, Status.CLEAR) == ["router-stale-metrics"]


def test_without_traffic_it_decides_nothing() -> None:
    given = {f"decode-{i}": {"worker_selection": None, "running_requests": None} for i in range(3)}
    found = ask(ID, view(workers=THREE, series=but(routed(200.0), given)))
    assert one(found, Status.UNKNOWN).missing[0].signal == "worker_selection"
    assert sum(w.ratio for w in one(found).for_) == MODERATE


@pytest.mark.parametrize(("running", "seen"), [(100.0, True), (20.0, False)])
def test_far_more_running_than_its_peers_stands_for_traffic(running: float, seen: bool) -> None:
    given = {f"decode-{i}": {"worker_selection": None} for i in range(3)}
    changed = but(given, {"decode-0": {"running_requests": running}})
    found = ask(ID, view(workers=THREE, series=but(routed(200.0), changed)))
    assert bool([w for w in one(found).for_ if w.group == "traffic"]) is seen


def test_a_router_that_tells_no_age_is_not_judged() -> None:
    assert ask(ID, view(workers=THREE, series=sound(1, 3))) == ()


def test_report() -> None:
    more = {"decode-0": {"running_requests": 40.0}, "client": {"ttft_seconds.p95": (0.4, 4.0)}}
    report = golden(ID, view(workers=THREE, series=but(routed((2.0, 240.0)), more)))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("router-stale-metrics", ID)
    assert "routing-rebalance" in [d.action for d in report.top.do_not]
