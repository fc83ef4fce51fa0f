"""transfer/link-slow: beside a stated link, peers, history, or only the split of TTFT."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, ask, but, causes, golden, histogram, one, sound, view

ID = "transfer/link-slow"
WORKERS = ("prefill-0", "decode-0", "decode-1", "decode-2")


def pairs(*speeds: float) -> Given:
    return {f"pair:prefill-0>decode-{i}": {"kv_transfer_bandwidth.mean": v} for i, v in enumerate(speeds)}


@pytest.mark.parametrize(("speed", "fires"), [(2.51e9, False), (2.49e9, True)])
def test_half_of_its_peers(speed: float, fires: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=but(sound(1, 3), pairs(5e9, speed, 5e9))))
    assert bool(causes(found)) is fires
    if fires:
        assert {str(s) for f in found for s in f.scopes} == {"prefill-0>decode-1"}
        assert found[0].for_[0].evidence.basis == "peer"


@pytest.mark.parametrize(("speed", "basis"), [((5e9, 2.4e9), "history"), ((5e9, 2.6e9), None)])
def test_half_of_its_own_history(speed: tuple[float, float], basis: str | None) -> None:
    found = ask(ID, view(series=but(sound(), {"decode-0": {"kv_transfer_bandwidth.mean": speed}})))
    assert {f.for_[0].evidence.basis for f in found if f.for_} == ({basis} if basis else set())


@pytest.mark.parametrize(("link", "fires"), [(9.9e9, False), (10.1e9, True)])
def test_half_of_the_stated_link(link: float, fires: bool) -> None:
    found = ask(ID, view(series=sound(), link_bytes_per_s=link))
    assert bool(causes(found)) is fires


@pytest.mark.parametrize(("speed", "likelier"), [(1.51e9, "transport-slow"), (1.49e9, "transport-fallback-slow")])
def test_a_big_fall_points_to_another_path(speed: float, likelier: str) -> None:
    found = ask(ID, view(series=but(sound(), {"decode-0": {"kv_transfer_bandwidth.mean": (5e9, speed)}})))
    assert [likelier] == [f.cause for f in found if any(w.group == "factor" for w in f.for_)]
    assert [likelier] != [f.cause for f in found if any(w.group == "factor" for w in f.against)]


def by_ports(carried: float) -> dict[str, list[str]]:
    own = {"kv_transfer_bandwidth.mean": (5e9, 0.5e9), "rdma_received_bytes": (240e9, carried)}
    found = ask(ID, view(series=but(sound(), {"decode-0": own})))
    return {
        side: [f.cause for f in found if any(w.group == "way" for w in getattr(f, side))]
        for side in ("for_", "against")
    }


def test_ports_that_kv_left_mean_another_path_and_ports_that_carry_it_a_slow_one() -> None:
    assert by_ports(1e9) == {"for_": ["transport-fallback-slow"], "against": ["transport-slow"]}
    assert by_ports(120e9) == {"for_": ["transport-slow"], "against": ["transport-fallback-slow"]}


def test_receivers_that_share_a_sender_with_the_slow_one_are_not_accused() -> None:
    speeds = {f"decode-{i}": {"kv_transfer_bandwidth.mean": (5e9, v)} for i, v in enumerate((2.2e9, 0.1e9, 2.3e9))}
    found = ask(ID, view(workers=WORKERS, series=but(sound(1, 3), speeds)))
    assert {str(s) for f in found for s in f.scopes} == {"decode-1"}


def test_where_the_others_lost_more_than_sharing_costs_all_are_slow() -> None:
    speeds = {f"decode-{i}": {"kv_transfer_bandwidth.mean": (5e9, v)} for i, v in enumerate((0.4e9, 0.1e9, 0.4e9))}
    found = ask(ID, view(workers=WORKERS, series=but(sound(1, 3), speeds)))
    assert {str(s) for f in found for s in f.scopes} == {"decode-0", "decode-1", "decode-2"}


LONG = {"kv_transfer_seconds.mean": (0.02, 0.2)}
"""Transfers that take a fifth of the promised TTFT of a second."""


@pytest.mark.parametrize(("seconds", "against"), [(0.049, 1), (0.051, 0)])
def test_slower_transfers_that_nobody_can_feel_speak_against_it(seconds: float, against: int) -> None:
    given = {"decode-0": {"kv_transfer_bandwidth.mean": (5e9, 1.2e9), "kv_transfer_seconds.mean": (0.01, seconds)}}
    found = one(ask(ID, view(series=but(sound(), given))), cause="transport-fallback-slow")
    assert len(found.against) == against


@pytest.mark.parametrize(("level", "against"), [(2.0, 0), (2.1, 1)])
def test_overlapping_transfers_divide_the_measure(level: float, against: int) -> None:
    given = {"decode-0": {"kv_transfer_bandwidth.mean": (5e9, 1.2e9), "transfer_queue_depth": (0, level), **LONG}}
    found = one(ask(ID, view(series=but(sound(), given))), cause="transport-fallback-slow")
    assert len(found.against) == against


def test_a_fall_that_overlap_cannot_explain() -> None:
    given = {"decode-0": {"kv_transfer_bandwidth.mean": (5e9, 0.1e9), "transfer_queue_depth": (0, 8), **LONG}}
    assert one(ask(ID, view(series=but(sound(), given))), cause="transport-fallback-slow").against == ()


def test_is_clear_when_as_fast_as_ever() -> None:
    assert causes(ask(ID, view(series=sound())), Status.CLEAR) == ["transport-slow"]


def test_nothing_to_compare_with_is_said() -> None:
    now_only = [(-60.0, 1e9), (0.0, 1e9)]
    given = {"decode-0": {"kv_transfer_bandwidth.mean": now_only}}
    found = one(ask(ID, view(series=but(sound(), given))), Status.UNKNOWN)
    assert found.missing[0].fix


def test_without_any_bandwidth_it_says_nothing() -> None:
    none = {"kv_transfer_bandwidth.mean": None, "kv_transfer_bytes": None}
    assert ask(ID, view(series=but(sound(), {"decode-0": none}))) == ()


@pytest.mark.parametrize(("transfer_s", "fires"), [(0.32, False), (0.40, True)])
def test_the_split_of_ttft_alone_says_a_little(transfer_s: float, fires: bool) -> None:
    changes: Given = {
        "decode-0": {
            "kv_transfer_bandwidth.mean": None,
            "kv_transfer_bytes": None,
            "kv_transfer_seconds.mean": transfer_s,
            "queue_seconds.mean": transfer_s,
        },
        "prefill-0": {"queue_seconds.mean": 0.1, "prefill_seconds.mean": 0.25},
        "client": {"ttft_seconds.p95": 2.0},
    }
    found = ask(ID, view(series=but(sound(), changes)))
    assert causes(found) == (["transport-slow"] if fires else [])
    assert all(f.cap == 0.6 for f in found)


def test_report() -> None:
    changes = but(
        pairs(7.5e9, 0.4e9, 7.4e9),
        {
            "decode-1": {"kv_transfer_seconds.mean": (0.02, 1.4), "queue_seconds.mean": (0.06, 1.5)},
            "client": {"ttft_seconds.p95": (0.4, 2.6)},
        },
    )
    report = golden(ID, view(workers=WORKERS, series=but(sound(1, 3), changes)))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, [str(s) for s in report.top.scopes]) == (
        "transport-fallback-slow",
        ["prefill-0>decode-1"],
    )
    assert "scale-out-prefill" in [d.action for d in report.top.do_not]


@pytest.mark.parametrize(("waited", "little"), [(0.09, False), (0.11, True)])
def test_a_short_transfer_is_set_beside_what_clients_wait_where_stages_are_not_told(
    waited: float, little: bool
) -> None:
    own = {"kv_transfer_bandwidth.mean": (5e9, 1e9)}
    waits = {"ttft_seconds.p95": (0.4, 2.5), "ttft_seconds.mean": (0.05, waited)}
    untold = {"queue_seconds.mean": None, "prefill_seconds.mean": None}
    given = but(sound(), {"decode-0": own, "client": waits, "prefill-0": untold})
    found = one(ask(ID, view(series=given)), cause="transport-slow")
    assert ("little" in [w.group for w in found.against]) is little


@pytest.mark.parametrize(("arrived", "fires"), [(0, True), (3e9, False)])
def test_ports_tell_the_speed_only_while_no_transfer_ends(arrived: float, fires: bool) -> None:
    untimed: Given = {
        "decode-0": {
            "kv_transfer_bandwidth.mean": None,
            "kv_transfer_seconds.mean": None,
            "kv_transfer_bytes": (240e9, arrived),
            "rdma_received_bytes": (240e9, 3e9),
            "transfer_queue_depth": 0.5,
        }
    }
    assert bool(causes(ask(ID, view(workers=WORKERS, series=but(sound(1, 3), untimed))))) is fires


def test_beside_one_that_lost_ten_times_as_much_the_rest_only_share() -> None:
    speeds = {f"decode-{i}": {"kv_transfer_bandwidth.mean": (5e9, v)} for i, v in enumerate((1.2e9, 0.1e9, 5e9))}
    found = ask(ID, view(workers=WORKERS, series=but(sound(1, 3), speeds)))
    assert {str(s) for f in found for s in f.scopes} == {"decode-1"}


@pytest.mark.parametrize(("fast_s", "few"), [(0.02, True), (0.2, False)])
def test_where_half_of_the_transfers_are_as_fast_as_ever_few_of_them_stall(fast_s: float, few: bool) -> None:
    """Seven of ten take `fast_s`, the others four seconds; before, all took 20 ms."""
    took = histogram([0.01, 0.05, 0.1, 0.5, 1.0, 8.0], {0.02: 600}, {fast_s: 210, 4.0: 90})
    given = {
        f"decode-{i}": {
            "kv_transfer_bandwidth.mean": (5e9, 1.2e9),
            "kv_transfer_seconds.mean": None,
            "kv_transfer_seconds": took,
        }
        for i in range(3)
    }
    found = ask(ID, view(workers=WORKERS, series=but(sound(1, 3), given)))
    assert ("network-degraded" in causes(found)) is few
    assert ("few" in [w.group for w in one(found, cause="transport-slow").against]) is few
