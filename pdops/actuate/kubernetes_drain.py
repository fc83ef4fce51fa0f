"""Empty a worker before it goes: nothing new, then no request, then no KV that somebody may still pull."""

from __future__ import annotations

from collections.abc import Callable

from pdops.actuate.kubernetes_lease import Leader
from pdops.actuate.local import DRAIN_S, LEASE_MARGIN
from pdops.clock import Clock
from pdops.errors import ActionError

LOOKS = 3
"""Looks in a row at which a worker must be empty: a request may be between two of them."""
_POLL_S = 2.0
Held = Callable[[], int | None]


def emptied(
    worker: str, role: str, inflight: Held, leader: Leader, clock: Clock, sleep: Callable[[float], None], lease_s: float
) -> None:
    """Wait until a cordoned worker holds nothing, and of prefill one and a half KV leases (`lease_s`, seconds) more.

    Raises:
        ActionError: it does not become empty in time, or nobody tells whether it is.
        FencedError: somebody else has taken over meanwhile.
    """
    end, good, held = clock.monotonic() + DRAIN_S, 0, inflight()
    while True:
        good = good + 1 if held == 0 else 0
        if good >= LOOKS:
            break
        if clock.monotonic() > end:
            why = "nobody tells how many requests are in it" if held is None else f"{held} in flight"
            raise ActionError(f"{worker} is not empty", where=worker, why=why, hint="try again later")
        sleep(_POLL_S)
        leader.keep()
        held = inflight()
    if role != "prefill":
        return
    until = clock.monotonic() + lease_s * LEASE_MARGIN
    while (left := until - clock.monotonic()) > 0:
        sleep(min(left, _POLL_S))
        leader.keep()
