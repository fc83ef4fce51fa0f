"""Which worker of the inventory a process of this machine belongs to."""

from __future__ import annotations

from collections.abc import Callable

from pdops.model.cluster import Cluster, Role
from pdops.sources.facts.live import is_here
from pdops.sources.facts.process import ProcReader
from pdops.sources.facts.reachfacts import http_place
from pdops_exporters.gpu import Owner

AGAIN_S = 30.0
"""Seconds between looks at the processes of this machine, which cost a walk through /proc."""
_ENGINES = (Role.PREFILL, Role.DECODE, Role.COLOCATED)


class LocalOwners:
    """Knows the engines that listen on this machine, and the processes below them, which are the ones on GPUs.

    An engine in another container is found only when this process sees its processes (`hostPID`, or a process namespace
    that both share).

    Args:
        cluster: whose workers may own a process.
        monotonic: gives seconds that only grow.
        proc: reads processes; another /proc in tests.
        here: tells whether a host name is this machine.
    """

    def __init__(
        self,
        cluster: Cluster,
        monotonic: Callable[[], float],
        *,
        proc: ProcReader | None = None,
        here: Callable[[str], bool] = is_here,
    ) -> None:
        self._proc, self._monotonic = proc or ProcReader(), monotonic
        self._places = [
            (Owner(worker.role.value, worker.id), "127.0.0.1" if place.host == "localhost" else place.host, place.port)
            for worker in cluster.of_role(*_ENGINES)
            if (place := http_place(worker)) is not None and here(place.host)
        ]
        self._owners: dict[int, Owner] = {}
        self._due_s = monotonic()

    def __call__(self, pid: int) -> Owner | None:
        """Return whose process it is, or None."""
        now_s = self._monotonic()
        if self._places and now_s >= self._due_s:
            self._due_s = now_s + AGAIN_S
            self._owners = self._look()
        return self._owners.get(pid)

    def _look(self) -> dict[int, Owner]:
        found: dict[int, Owner] = {}
        for owner, host, port in self._places:
            listener = self._proc.listener(host, port)
            if listener is not None:
                found |= dict.fromkeys((listener, *self._proc.descendants(listener)), owner)
        return found
