"""network/cross-zone: the slow pairs are the ones that cross."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, one, sound, view, worker

ID = "network/cross-zone"
WORKERS = (
    worker("prefill-0", zone="a"),
    worker("prefill-1", zone="b"),
    worker("decode-0", zone="a"),
    worker("decode-1", zone="b"),
)
INSIDE = ("prefill-0>decode-0", "prefill-1>decode-1")
ACROSS = ("prefill-0>decode-1", "prefill-1>decode-0")


def pairs(across: Points, inside: Points = 10e9, signal: str = "kv_transfer_bandwidth.mean") -> Given:
    given = {f"pair:{p}": {signal: inside} for p in INSIDE} | {f"pair:{p}": {signal: across} for p in ACROSS}
    return but(sound(2, 2), given)


@pytest.mark.parametrize(("across", "fires"), [(5.0e9, False), (4.9e9, True)])
def test_half_the_speed_of_pairs_inside(across: float, fires: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=pairs(across)))
    assert causes(found) == (["cross-zone"] if fires else [])
    assert bool(causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize("signal", ["kv_transfer_seconds.mean", "handoff_seconds.mean"])
@pytest.mark.parametrize(("across", "fires"), [(0.2, False), (0.21, True)])
def test_twice_the_time_where_speed_is_not_told(signal: str, across: float, fires: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=pairs(across, 0.1, signal)))
    assert bool(causes(found)) is fires


def test_the_pairs_are_named() -> None:
    found = one(ask(ID, view(workers=WORKERS, series=pairs(1e9))))
    assert {str(s) for s in found.scopes} == set(ACROSS)


def test_slow_pairs_inside_a_zone_speak_against_it() -> None:
    slow = but(pairs(1e9), {f"pair:{INSIDE[0]}": {"kv_transfer_bandwidth.mean": 1e9}})
    third = but(slow, {"pair:prefill-1>decode-2": {"kv_transfer_bandwidth.mean": 10e9}})
    workers = (*WORKERS, worker("decode-2", zone="b"))
    assert one(ask(ID, view(workers=workers, series=third))).against


def test_if_every_pair_crosses_there_is_nothing_to_compare_with() -> None:
    given = {f"pair:{p}": {"kv_transfer_bandwidth.mean": 1e9} for p in ACROSS}
    found = one(ask(ID, view(workers=WORKERS, series=given)), Status.UNKNOWN)
    assert "crosses" in found.missing[0].why


def test_pairs_inside_a_zone_that_are_no_longer_used_still_say_what_is_usual() -> None:
    given = pairs((9e9, 1e9), [(-600.0, 10e9), (-400.0, 10e9)])
    found = one(ask(ID, view(workers=WORKERS, series=given)))
    assert {"slow", "crossing", "zones"} == {w.group for w in found.for_}


def test_one_slow_pair_of_many_across_zones_is_its_own_trouble() -> None:
    given = but(pairs(10e9), {f"pair:{ACROSS[0]}": {"kv_transfer_bandwidth.mean": 1e9}})
    assert causes(ask(ID, view(workers=WORKERS, series=given))) == []


def test_without_zones_or_pairs_it_says_nothing() -> None:
    names = tuple(w.id for w in WORKERS)
    assert ask(ID, view(workers=names, series=pairs(1e9))) == ()
    assert ask(ID, view(workers=WORKERS, series=sound(2, 2))) == ()


def test_report() -> None:
    given = but(pairs((9e9, 0.8e9)), {"client": {"ttft_seconds.p95": (0.4, 1.8)}})
    report = golden(ID, view(workers=WORKERS, series=given))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("cross-zone", ID)
    assert "transport-fallback-slow" in [r.cause for r in report.ruled_out]


def test_few_hand_offs_across_zones_say_nothing_where_none_inside_is_left() -> None:
    many = tuple(worker(f"decode-{i}", zone="ab"[i % 2]) for i in range(6))
    across = [f"prefill-{p}>decode-{d}" for p in (0, 1) for d in range(6) if p != d % 2]
    given: dict[str, dict[str, object]] = {"pair:prefill-0>decode-0": {"handoff_seconds.mean": [(-600.0, 0.1)]}}
    for place, pair in enumerate(across):
        given[f"pair:{pair}"] = {"handoff_seconds.mean": (0.1, 9.0) if place < 2 else [(-600.0, 0.1)]}
    seen = view(workers=(*WORKERS[:2], *many), series=but(sound(2, 6), given))  # type: ignore[arg-type]
    assert causes(ask(ID, seen)) == []


@pytest.mark.parametrize(("across", "felt"), [(0.059, False), (0.061, True)])
def test_what_takes_less_than_a_twentieth_of_the_promise_is_not_felt(across: float, felt: bool) -> None:
    """A second is promised, and pairs inside a zone take 10 ms."""
    found = one(ask(ID, view(workers=WORKERS, series=pairs(across, 0.01, "handoff_seconds.mean"))))
    assert ("little" in [w.group for w in found.against]) is not felt
