"""What drills do to KV links, on the real kernel: the rate is proven with a plain TCP copy, and everything is put back."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pdops.clock import VirtualClock, WallClock
from pdops.errors import DeploymentError
from pdops.reference.drills import links, tcpcopy
from pdops.reference.drills.stage import Stage
from pdops.reference.network import Network
from tests.reference.drill_double import Cast, D, Double, P, spec

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not Network.available()[0], reason=Network.available()[1]),
]


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    made = Network(f"drill-{os.getpid()}", [P, D])
    made.up()
    yield made
    made.down()
    assert made.leftovers() == ()


@pytest.fixture
def stage(network: Network, tmp_path: Path) -> Iterator[Stage]:
    clock = WallClock()
    double = Double(tmp_path, spec(), network=network)  # type: ignore[arg-type]
    made = Stage(double, Cast(VirtualClock()), clock, time.sleep, lambda _line: None, clock.now(), recording=True)
    yield made
    made.put_back()
    assert not network.faulty(D)


@pytest.mark.parametrize("seconds", [0.8, 5.0])
def test_a_slow_link_is_proven_and_told(stage: Stage, seconds: float) -> None:
    undo = links.limit(stage, seconds=seconds)
    told = re.search(
        r"limit the KV link to ([\d.e+]+) Mbit/s \(a plain TCP copy: ([\d.e+]+) Mbit/s", stage.actions[0]["what"]
    )
    assert told is not None
    wanted = 300 * 1024 * 8 / seconds / 1e6
    assert [float(t) for t in told.groups()] == [pytest.approx(wanted, rel=0.01), pytest.approx(wanted, rel=0.5)]
    stage.end(undo)
    assert stage.undos == []


@pytest.mark.parametrize("act", [links._lossy, links._cut])
def test_a_broken_link_is_broken_and_put_back(act: Callable[[Stage], None], stage: Stage, network: Network) -> None:
    act(stage)
    assert network.faulty(D)
    stage.put_back()
    assert not network.faulty(D)


def test_a_copy_that_cannot_arrive_is_said(stage: Stage, network: Network) -> None:
    links._cut(stage)
    with pytest.raises(DeploymentError, match="a plain TCP copy over the KV link failed: prefill-0 to decode-0"):
        tcpcopy.bits_per_s(network, P, D, most_bytes=1 << 20, seconds=1.0)
