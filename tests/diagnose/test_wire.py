"""Which way KV takes, by what the ports carried beside it."""

from __future__ import annotations

import pytest

from pdops.diagnose.context import Context
from pdops.diagnose.wire import Way, wire
from tests.diagnose.build import Points, but, sound, view


def way(port: Points, kv: Points = (240e9, 120e9)) -> Way:
    given = but(sound(), {"decode-0": {"rdma_received_bytes": port, "kv_transfer_bytes": kv}})
    return wire(Context(view(series=given)), "decode-0").way


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        ((240e9, 120e9), Way.RDMA),
        ((240e9, 61e9), Way.RDMA),
        ((240e9, 59e9), Way.LEFT),
        ((240e9, 239e9), Way.RDMA),
        ((240e9, 241e9), Way.SHARED),
        ((0, 0), Way.UNKNOWN),
        (None, Way.UNKNOWN),
    ],
)
def test_the_ports_share_of_kv_tells_the_way(port: Points, expected: Way) -> None:
    assert way(port) is expected


def test_kv_that_still_waits_to_arrive_is_not_foreign() -> None:
    assert way((240e9, 115e9), kv=(240e9, 30e9)) is Way.RDMA


def test_bytes_on_their_way_are_no_silence() -> None:
    moving = but(sound(), {"decode-0": {"rdma_received_bytes": (240e9, 3e9), "kv_transfer_bytes": (240e9, 0)}})
    assert wire(Context(view(series=moving)), "decode-0").moves
    silent = but(moving, {"decode-0": {"rdma_received_bytes": (240e9, 1e9)}})
    assert not wire(Context(view(series=silent)), "decode-0").moves


def test_a_port_that_others_used_already_says_nothing_about_kv() -> None:
    shared = but(sound(), {"decode-0": {"rdma_received_bytes": (900e9, 450e9), "kv_transfer_bytes": (240e9, 0)}})
    assert not wire(Context(view(series=shared)), "decode-0").moves
