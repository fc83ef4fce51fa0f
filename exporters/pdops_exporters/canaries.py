"""Send canaries on a timer, so that wrong text and broken hand-overs are seen without anybody asking."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any

from pdops.clock import Clock
from pdops.model.cluster import Cluster, Pair, Role
from pdops.model.frame import Probe, ProbeKind
from pdops.probe.canary import Canary
from pdops.probe.report import to_probes

_log = logging.getLogger(__name__)

PAIRS_A_ROUND = 16
"""Pairs asked in one round; the next round goes on behind them, so that a large P×D is no load of its own."""

Send = Callable[[Sequence[Pair]], Awaitable[tuple[Probe, ...]]]


class Canaries:
    """Asks some pairs and all routers each round; what came of it waits until it is taken.

    Args:
        cluster: whose pairs and routers.
        clock: for pauses and durations.
        every_s: seconds between the beginnings of two rounds; a round that takes longer delays the next one.
        send: sends one round; another one in tests.
    """

    def __init__(self, cluster: Cluster, clock: Clock, every_s: float, *, send: Send | None = None) -> None:
        self._cluster, self._clock, self._every_s = cluster, clock, every_s
        self._send = send or self._ask
        self._next = 0
        self._found: list[Probe] = []

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            begin, turn = self._clock.monotonic(), self._turn()
            try:
                self._found += await self._send(turn)
            except Exception as error:  # noqa: BLE001  told as not judged; it must not end the watch over a cluster
                why = f"{type(error).__name__}: {error}"
                _log.warning("canaries could not be sent: %s", why)
                # What was right the last time is not known to be so now.
                told: dict[str, Any] = {"t_s": self._clock.now(), "kind": ProbeKind.CANARY, "ok": None, "detail": why}
                self._found += [Probe(**told, worker=router.id) for router in self._cluster.of_role(Role.ROUTER)]
                self._found += [Probe(**told, pair=str(pair)) for pair in turn]
            await self._clock.sleep(max(1.0, begin + self._every_s - self._clock.monotonic()))

    def take(self) -> tuple[Probe, ...]:
        """Return what was found since the last call."""
        found, self._found = tuple(self._found), []
        return found

    def _turn(self) -> tuple[Pair, ...]:
        every = self._cluster.pairs()
        begin, self._next = self._next, self._next + PAIRS_A_ROUND
        if self._next >= len(every):
            self._next = 0
        return tuple(islice(every, begin, begin + PAIRS_A_ROUND))

    async def _ask(self, pairs: Sequence[Pair]) -> tuple[Probe, ...]:
        # Each round has its own connections, as a person's canary has: what was kept open may hide a broken address.
        report = await Canary(self._cluster, self._clock).run(pairs)
        return to_probes(report.results)
