"""Let a simulation run at a multiple of real time, and show it on loopback."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pdops.clock import Clock, WallClock
from pdops.model.frame import Frame
from pdops.sim.instruments import EPOCH_S
from pdops.sim.inventory import inventory_text
from pdops.sim.page_server import PageServer
from pdops.sim.source import Simulated

MOST_SPEED = 60.0
TICK_S = 0.25
"""Seconds between two looks at the simulation; a page is at most that old."""
_SLICE_S = 1.0
"""Virtual seconds that pass before requests are answered again."""
_BEHIND_S = 5.0
"""Seconds of lag after which time is let go, so that a slow machine shows a slower cluster and not a jumping one."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """How to show it: virtual seconds per second, ports by page, where to write the inventory and log lines."""

    speed: float = 1.0
    ports: Mapping[str, int] | None = None
    inventory: Path | None = None
    logs: Path | None = None


class Player:
    """Runs a simulation beside the clock.

    Args:
        simulation: what runs.
        speed: virtual seconds per second, above 0 and at most 60.
        clock: whose seconds.

    Raises:
        ValueError: there is no such speed.
    """

    def __init__(self, simulation: Simulated, speed: float, clock: Clock) -> None:
        if not 0 < speed <= MOST_SPEED:
            raise ValueError(f"speed is above 0 and at most {MOST_SPEED:g}, not {speed}")
        self._simulation, self.speed, self._clock = simulation, speed, clock
        self._began_s, self._wall_s = clock.monotonic(), clock.now()
        self._lost_s = 0.0
        # From which Unix second of the simulation on so many seconds had been lost.
        self._losses: list[tuple[float, float]] = [(-math.inf, 0.0)]
        self.now_s = 0.0

    def wall(self, simulated_s: float) -> float:
        """Return the Unix second at which a Unix second of the simulation is (or was) shown.

        It is the same at each call for what lies in the past: a start time that moved would be a restart to the reader.
        """
        _, lost_s = self._losses[bisect_right(self._losses, simulated_s, key=lambda loss: loss[0]) - 1]
        return self._wall_s + (simulated_s - EPOCH_S) / self.speed + lost_s

    async def step(self) -> Frame:
        """Catch up with the clock and return what happened."""
        due_s = self._due_s()
        while self.now_s < due_s:
            self.now_s = min(due_s, self.now_s + _SLICE_S)
            self._simulation.advance(self.now_s)
            await asyncio.sleep(0)
            lag_s = (self._due_s() - self.now_s) / self.speed
            if lag_s > _BEHIND_S:
                if not self._lost_s:
                    log.warning("this machine does not keep up with speed %g: simulated time passes slower", self.speed)
                self._lost_s += lag_s
                self._losses.append((EPOCH_S + self.now_s, self._lost_s))
                break
        return self._simulation.frame()

    def _due_s(self) -> float:
        return (self._clock.monotonic() - self._began_s - self._lost_s) * self.speed


async def serve(
    simulation: Simulated,
    show: Show,
    stop: asyncio.Event,
    ready: Callable[[PageServer], None],
    clock: Clock | None = None,
) -> None:
    """Show a simulation until `stop` is set; `ready` is called once all pages answer and the inventory is written.

    Raises:
        UsageError: a port cannot be used.
        OSError: a file cannot be written.
    """
    watch = clock or WallClock()
    player = Player(simulation, show.speed, watch)
    model = simulation.cluster.model or "simulated"

    def version(worker: str) -> str | None:
        found = simulation.cluster.get(worker)
        return None if found is None else found.version

    server = PageServer(simulation.instruments, model=model, versions=version, ports=show.ports, clock=player.wall)
    try:
        await server.open()
        if show.inventory is not None:
            text = inventory_text(simulation.cluster, simulation.instruments, server.url, show.logs)
            fresh = show.inventory.with_suffix(".new")
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(show.inventory)
        ready(server)
        while not stop.is_set():
            frame = await player.step()
            await server.follow()
            _write(frame, show.logs)
            await _either(watch.sleep(TICK_S), stop)
    finally:
        await server.aclose()


async def until_signal(stop: asyncio.Event) -> None:
    """Set `stop` when the process is told to end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


def _write(frame: Frame, folder: Path | None) -> None:
    if folder is None:
        return
    for line in frame.logs:
        with (folder / f"{line.worker}.log").open("a", encoding="utf-8") as out:
            out.write(line.line + "\n")


async def _either(waiting: object, stop: asyncio.Event) -> None:
    tasks = [asyncio.ensure_future(waiting), asyncio.create_task(stop.wait())]  # type: ignore[call-overload]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
