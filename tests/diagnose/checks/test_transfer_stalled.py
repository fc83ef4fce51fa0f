"""transfer/stalled: transfers in progress for fifteen seconds and no byte."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, histogram, one, sound, view

ID = "transfer/stalled"


def moved_until(t_s: float) -> list[tuple[float, float]]:
    return [(float(t), 1e9 * (min(float(t), t_s) + 900)) for t in np.arange(-900, 1, 5)]


def stalled(in_progress: Points, until_s: float = -60, deferred: Points = (0, 6)) -> Given:
    given = {
        "transfer_queue_depth": in_progress,
        "kv_transfer_bytes": moved_until(until_s),
        "queue_depth_deferred": deferred,
    }
    return but(sound(), {"decode-0": given})


def test_fires_with_the_deferred_queue_as_support() -> None:
    found = one(ask(ID, view(series=stalled((0, 3)))))
    assert found.cause == "network-partition"
    assert groups(found) == {"in-progress", "bytes", "deferred"}


@pytest.mark.parametrize(("until_s", "fires"), [(-15, True), (-14, False)])
def test_the_last_byte_is_fifteen_seconds_old(until_s: float, fires: bool) -> None:
    found = ask(ID, view(series=stalled((0, 3), until_s)))
    assert causes(found) == (["network-partition"] if fires else [])


def test_a_transfer_that_was_done_in_between_is_no_stall() -> None:
    assert ask(ID, view(series=stalled([(-30, 3), (-15, 2), (-5, 0), (0, 2)]))) == ()


def test_nothing_in_progress_is_no_stall() -> None:
    assert ask(ID, view(series=stalled((3, 0)))) == ()


@pytest.mark.parametrize("signal", ["transfer_queue_depth", "kv_transfer_bytes"])
def test_without_its_signals_it_says_nothing(signal: str) -> None:
    assert ask(ID, view(series=but(stalled((0, 3)), {"decode-0": {signal: None}}))) == ()


@pytest.mark.parametrize(("took", "fires"), [(4.9, True), (90.0, False)])
def test_a_slow_link_is_given_three_mean_transfers(took: float, fires: bool) -> None:
    slow = but(stalled((0, 3), -20), {"decode-0": {"kv_transfer_seconds.mean": (0.02, took)}})
    assert bool(causes(ask(ID, view(series=slow)))) is fires


def test_transfers_that_fail_do_not_hang() -> None:
    failing = but(stalled((0, 3)), {"decode-0": {"kv_transfer_failures": (0, 300)}})
    found = ask(ID, view(series=failing))
    assert (causes(found), causes(found, Status.CLEAR)) == ([], ["network-partition"])


def test_bytes_that_reach_the_ports_are_on_their_way() -> None:
    moving = but(stalled((0, 3)), {"decode-0": {"rdma_received_bytes": moved_until(0)}})
    assert causes(ask(ID, view(series=moving))) == []


def test_a_pair_without_hand_offs_whose_receiver_still_pulls_is_cut_by_itself() -> None:
    workers = ("prefill-0", "prefill-1", "decode-0", "decode-1")
    pulling = but(sound(2, 2), {"decode-0": {"transfer_queue_depth": (0, 4)}})
    for pair in ("prefill-0>decode-0", "prefill-0>decode-1", "prefill-1>decode-0", "prefill-1>decode-1"):
        now = {} if pair == "prefill-1>decode-0" else {0.1: 20}
        pulling = but(pulling, {f"pair:{pair}": {"handoff_seconds": histogram([1.0], {0.1: 40}, now)}})
    found = one(ask(ID, view(workers=workers, series=pulling)))
    assert (found.cause, [str(s) for s in found.scopes]) == ("network-partition", ["prefill-1>decode-0"])


@pytest.mark.parametrize(("every_s", "fires"), [(5.0, True), (10.0, False)])
def test_each_worker_of_a_pool_must_have_told_of_a_stall_that_is_over(every_s: float, fires: bool) -> None:
    times = [float(t) for t in np.arange(-900, 1, 5)]
    port = [(t, 1e9 * (t + 900 - (min(max(t + 100, 0.0), 20.0) if t > -100 else 0.0))) for t in times]
    pool = {f"signal-{n}": 1.0 for n in range(20)} | {"kv_transfer_bytes": port, "rdma_received_bytes": port}
    busy = {"transfer_queue_depth": [(t, 3.0) for t in np.arange(-900.0, 1.0, every_s)]}
    series = {"decode-0": busy, "decode-1": busy, "pool:decode": pool, "client": {"ttft_seconds.p95": (0.4, 30.0)}}
    workers = ("prefill-0", "decode-0", "decode-1")
    found = ask(ID, replace(view(workers=workers, series=series), interval_s=5.0))
    assert causes(found) == (["network-partition"] if fires else [])


def test_report() -> None:
    more = {"client": {"ttft_seconds.p95": (0.4, 30.0), "request_success": (1200, 5)}}
    report = golden(ID, view(series=but(stalled((0, 3)), more)))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert report.top.cause == "network-partition"
