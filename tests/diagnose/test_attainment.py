"""Attainment and goodput as intervals: never better known than what was counted."""

from __future__ import annotations

import dataclasses

import pytest

from pdops.diagnose.attainment import attainment, goodput
from pdops.history.readings import Readings
from pdops.model.cluster import CLIENT, Slo
from pdops.model.view import View
from tests.tui import build as b


def readings(view: View, **slo: float | None) -> Readings:
    return Readings(dataclasses.replace(view, cluster=dataclasses.replace(view.cluster, slo=Slo(**slo))))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def sound() -> View:
    return b.view(seconds=90)


def without(view: View, scope: str, *signals: str) -> View:
    return dataclasses.replace(
        view, series={k: v for k, v in view.series.items() if not (k[0] == scope and k[1] in signals)}
    )


def test_a_promise_on_an_edge_is_known_exactly(sound: View) -> None:
    found = attainment(readings(sound, ttft_s=1.0), "ttft_seconds", 1.0)
    assert found is not None
    assert (found.low, found.high) == (1.0, 1.0)


def test_a_promise_inside_a_bucket_is_an_interval(sound: View) -> None:
    found = attainment(readings(sound, ttft_s=0.7), "ttft_seconds", 0.7)
    assert found is not None
    assert (found.low, found.high) == (0.0, 1.0)


def test_where_nobody_counts_failures_there_is_no_lower_end(sound: View) -> None:
    found = attainment(readings(without(sound, CLIENT, "request_failure"), ttft_s=1.0), "ttft_seconds", 1.0)
    assert found is not None
    assert (found.low, found.high) == (0.0, 1.0)


def test_nothing_told_is_not_known(sound: View) -> None:
    blind = dataclasses.replace(sound, series={})
    assert attainment(readings(blind), "ttft_seconds", 1.0) is None


def test_goodput_of_a_sound_cluster_is_all_that_ended(sound: View) -> None:
    found = goodput(readings(sound, ttft_s=1.0, itl_s=0.05))
    assert found.per_s is not None
    assert found.per_s.low == pytest.approx(12.0)
    assert found.of_per_s == pytest.approx(12.0)


def test_gaps_that_may_be_too_long_lower_the_least_goodput_only(sound: View) -> None:
    found = goodput(readings(sound, ttft_s=1.0, itl_s=0.04))
    assert found.per_s is not None
    assert (found.per_s.low, found.per_s.high) == (0.0, pytest.approx(12.0))


@pytest.mark.parametrize("signal", ["request_success", "request_failure"])
def test_goodput_is_not_known_where_requests_are_not_counted(sound: View, signal: str) -> None:
    found = goodput(readings(without(sound, CLIENT, signal), ttft_s=1.0))
    assert found.per_s is None
    assert found.why


def test_without_ttft_at_clients_goodput_is_not_known(sound: View) -> None:
    found = goodput(readings(without(sound, CLIENT, "ttft_seconds"), ttft_s=1.0))
    assert found.per_s is None
    assert found.of_per_s == pytest.approx(12.0)


def test_without_itl_at_clients_goodput_is_an_upper_bound(sound: View) -> None:
    found = goodput(readings(without(sound, CLIENT, "itl_seconds"), ttft_s=1.0, itl_s=0.05))
    assert found.per_s is not None
    assert (found.per_s.low, found.per_s.high) == (0.0, pytest.approx(12.0))


def test_where_nothing_is_promised_there_is_no_goodput(sound: View) -> None:
    assert goodput(readings(sound)).per_s is None
