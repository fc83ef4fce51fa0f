"""network/saturated: full ports, and ports in trouble that KV feels."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import STRONG, WEAK, Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "network/saturated"
LINK = 1e9


def port(carried: Points = None, errors: Points = None, more: Given | None = None) -> Given:
    return but(but(sound(), {"decode-0": {"rdma_bytes": carried, "rdma_errors": errors}}), more or {})


@pytest.mark.parametrize(("rate", "fires"), [(0.8, False), (0.81, True)])
def test_four_fifths_of_the_link(rate: float, fires: bool) -> None:
    seen = view(series=port((300e9, rate * LINK * 300)), link_bytes_per_s=LINK)
    found = ask(ID, seen)
    assert causes(found) == (["network-saturated"] if fires else [])
    assert ("network-saturated" in causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize(("kv", "verdict"), [(140e9, Verdict.OVERLOAD), (100e9, Verdict.FAULT)])
def test_kv_that_fills_the_link_is_load_and_other_bytes_are_a_fault(kv: float, verdict: Verdict) -> None:
    given = port((300e9, 270e9), more={"decode-0": {"kv_transfer_bytes": (300e9, kv)}})
    assert one(ask(ID, view(series=given, link_bytes_per_s=LINK))).verdict is verdict


def test_without_the_links_rate_it_is_not_known() -> None:
    found = one(ask(ID, view(series=port((300e9, 290e9)))), Status.UNKNOWN)
    assert (found.cause, bool(found.missing[0].fix)) == ("network-saturated", True)


@pytest.mark.parametrize(("errors", "fires"), [(30, False), (31, True)])
def test_errors_twice_as_fast_as_before(errors: float, fires: bool) -> None:
    """The base window is twice as long: 30 in it and 30 now is twice the pace."""
    found = ask(ID, view(series=port(errors=(30, errors))))
    assert causes(found) == (["network-degraded"] if fires else [])
    assert bool(causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize(("speed", "felt"), [(3.5e9, False), (3.4e9, True)])
def test_errors_that_nobody_feels_decide_nothing(speed: float, felt: bool) -> None:
    given = port(errors=(0, 50), more={"decode-0": {"kv_transfer_bandwidth.mean": (5e9, speed)}})
    found = one(ask(ID, view(series=given)))
    assert {w.ratio for w in found.for_ if w.group == "errors"} == {STRONG if felt else WEAK}


def test_failed_transfers_are_felt_too() -> None:
    given = port(errors=(0, 50), more={"decode-0": {"kv_transfer_failures": (0, 4)}})
    assert groups(one(ask(ID, view(series=given)))) == {"errors", "failures"}


def test_without_port_counters_it_says_nothing() -> None:
    assert ask(ID, view(series=sound(), link_bytes_per_s=LINK)) == ()


def test_report() -> None:
    more = {
        "decode-0": {"kv_transfer_bandwidth.mean": (5e9, 1.5e9), "kv_transfer_bytes": (240e9, 60e9)},
        "client": {"ttft_seconds.p95": (0.4, 1.6)},
    }
    report = golden(ID, view(series=port((300e9, 290e9), more=more), link_bytes_per_s=LINK))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("network-saturated", ID)


def shared(port_bytes: Points, waits: Points = (0, 9000), speed: Points = (5e9, 1e9)) -> Given:
    own: dict[str, Points] = {
        "rdma_received_bytes": port_bytes,
        "rdma_waits": waits,
        "kv_transfer_bandwidth.mean": speed,
    }
    return but(sound(), {"decode-0": own})


@pytest.mark.parametrize(("carried", "fires"), [(239e9, False), (500e9, True)])
def test_a_port_that_others_came_to_fill_needs_no_stated_link(carried: float, fires: bool) -> None:
    found = ask(ID, view(series=shared((240e9, carried))))
    assert ("network-saturated" in causes(found)) is fires
    if fires:
        assert groups(one(found, cause="network-saturated")) == {"full", "waits", "slower"}


def test_other_bytes_that_kv_does_not_feel_are_no_fault() -> None:
    assert causes(ask(ID, view(series=shared((240e9, 500e9), speed=5e9)))) == []
