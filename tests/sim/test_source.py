"""Frames of a simulation: when they come, what they hold, and what pdops makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from pdops.clock import VirtualClock
from pdops.history.ring import Ring
from pdops.model.frame import Frame
from pdops.sim.instruments import EPOCH_S
from pdops.sim.run import Simulation, frames
from pdops.sim.source import SimSource
from pdops.sim.spec import SimSpec
from tests.sim.doubles import DoubleSimulation


async def _all(source: SimSource) -> list[Frame]:
    return [frame async for frame in source.frames()]


async def test_frames_come_every_interval_of_virtual_time_until_the_end() -> None:
    found = await _all(SimSource(DoubleSimulation(), interval_s=0.1, until_s=1.0))
    assert [round(f.at_s - EPOCH_S, 6) for f in found] == [round(0.1 * n, 6) for n in range(1, 11)]


async def test_pacing_waits_for_the_clock() -> None:
    clock = VirtualClock()
    found = await _all(SimSource(DoubleSimulation(), interval_s=5.0, until_s=60.0, speed=10.0, clock=clock))
    assert len(found) == 12
    assert clock.monotonic() == pytest.approx(6.0)


async def test_closing_ends_the_frames() -> None:
    source = SimSource(DoubleSimulation())
    count = 0
    async for _ in source.frames():
        count += 1
        if count == 3:
            await source.aclose()
    assert count == 3


async def test_a_simulations_frames_are_those_of_its_run() -> None:
    spec = SimSpec(seed=3, duration_s=30.0)
    found = await _all(SimSource(Simulation(spec), until_s=30.0))
    expected = list(frames(spec, 5.0))
    assert [f.at_s for f in found] == [f.at_s for f in expected]
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one.scrapes, other.scrapes, strict=True):
            assert a.layout is not None
            assert b.layout is not None
            assert a.layout.series == b.layout.series
            np.testing.assert_array_equal(a.values, b.values)


async def test_history_reads_rates_and_latencies_of_simulated_frames() -> None:
    simulation = DoubleSimulation()
    source = SimSource(simulation, until_s=60.0)
    ring = Ring(source.cluster, interval_s=source.interval_s)
    async for frame in source.frames():
        ring.add(frame)
    view = ring.view()
    assert {"prefill-0", "decode-0"} <= {scope for scope, _ in view.series}
    assert ("client", "ttft_seconds") in view.series
    (counted,) = view.series["decode-0", "prompt_tokens"]
    assert counted.v[-1] - counted.v[0] == pytest.approx(55 * 10 * 100)


@pytest.mark.parametrize("wrong", [{"interval_s": 0.0}, {"speed": 0.0}, {"speed": float("nan")}])
def test_an_interval_or_speed_that_is_none_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="above zero"):
        SimSource(DoubleSimulation(), **wrong)
