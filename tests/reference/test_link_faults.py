"""Command lines that break a KV link."""

from __future__ import annotations

import math

import pytest

from pdops.errors import UsageError
from pdops.reference import link_faults


def test_slow_is_a_token_bucket_with_room_for_a_packet() -> None:
    (command,) = link_faults.slow("pdops-a-prefill-0", "kv", 20e6, 400)
    assert " ".join(command) == (
        "tc -n pdops-a-prefill-0 qdisc replace dev kv root tbf rate 20000000bit burst 16384 latency 400ms"
    )


def test_a_fast_link_gets_a_bucket_that_lasts_a_clock_tick() -> None:
    (command,) = link_faults.slow("n", "kv", 10e9, 50)
    assert command[command.index("burst") + 1] == str(5_000_000)


@pytest.mark.parametrize(("rate", "latency"), [(0, 400), (-1, 400), (math.nan, 400), (math.inf, 400), (1e6, 0)])
def test_numbers_no_queue_takes_are_refused(rate: float, latency: float) -> None:
    with pytest.raises(UsageError):
        link_faults.slow("n", "kv", rate, latency)


def test_loss_draws_for_each_packet_and_a_cut_does_not() -> None:
    (loss,) = link_faults.drop("n", "kv", 2.5)
    assert loss[:5] == ("ip", "netns", "exec", "n", "nft")
    assert "numgen random mod 10000 < 250 counter drop" in loss[5]
    (cut,) = link_faults.drop("n", "kv", 100)
    assert "numgen" not in cut[5]
    assert "counter drop" in cut[5]


def test_tables_are_ours_by_name() -> None:
    (undo,) = link_faults.undrop("n", "kv")
    assert undo[-2:] == ("netdev", "pdops_kv")
