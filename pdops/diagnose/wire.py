"""Which way KV takes: what a worker's RDMA ports carried beside the KV that it says it moved."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import Weighed
from pdops.model.cluster import Role

CARRIES = 0.5
"""Share of its KV that a worker's ports must have carried for KV to go through them; scrapes that fall apart lose less."""
FOREIGN = 2.0
"""Bytes through the ports this many times the KV that moved are mostly somebody else's."""
MOVES = 0.01
"""Share of what a port carried before below which it is as good as silent: what keeps connections alive is far less."""


class Way(StrEnum):
    """What the ports say of the way."""

    RDMA = "rdma"
    LEFT = "left"
    """KV went through the ports before and does so no longer, though it still moves."""
    SHARED = "shared"
    """More than KV goes through the ports, and did not before."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Wire:
    """One worker's ports (bytes/s, the direction KV takes) and its KV (bytes/s), now and before; None where not known."""

    unit: str
    signal: str
    port: float | None
    kv: float | None
    port_before: float | None
    kv_before: float | None

    @property
    def way(self) -> Way:
        """Judge by the ports' share of KV now and before; without a past in which they carried it, unknown.

        While none of it has arrived, ports that only KV used and that are not silent carry it.
        """
        if self.kv == 0.0 and self.moves:
            return Way.RDMA
        if self.port is None or not self.kv or self.port_before is None or not self.kv_before:
            return Way.UNKNOWN
        now, before = self.port / self.kv, self.port_before / self.kv_before
        if before < CARRIES:
            return Way.UNKNOWN
        if now < CARRIES * before:
            return Way.LEFT
        # A link too slow for what is asked carries more than has arrived, but never more than it did before.
        if now > FOREIGN * max(before, 1.0) and self.port > FOREIGN * self.port_before:
            return Way.SHARED
        return Way.RDMA

    @property
    def moves(self) -> bool:
        """Whether KV is on its way although none arrived: ports that only KV used are not silent."""
        if self.port is None or not self.port_before or not self.kv_before:
            return False
        return self.port_before <= FOREIGN * self.kv_before and self.port >= MOVES * self.port_before


def wire(ctx: Context, unit: str) -> Wire:
    """Return what is known of a worker's ports; a decode worker receives KV, a prefill worker sends it."""
    signal = "rdma_received_bytes" if ctx.role_of(unit) is Role.DECODE else "rdma_bytes"
    return Wire(
        unit,
        signal,
        ctx.ask.rate(unit, signal).value,
        ctx.ask.rate(unit, "kv_transfer_bytes").value,
        past.rate(ctx, unit, signal),
        past.rate(ctx, unit, "kv_transfer_bytes"),
    )


def way_seen(ctx: Context, found: Wire, ratio: float, group: str) -> Weighed:
    """Return the bytes of the ports beside the KV that moved, as evidence."""
    seen = ctx.ask.rate(found.unit, found.signal)
    return ctx.saw(f"{found.signal}.rate", found.unit, seen, found.kv, basis="physics", ratio=ratio, group=group)
