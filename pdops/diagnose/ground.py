"""Which evidence may count: comparisons need peers or history to compare with."""

from __future__ import annotations

from collections.abc import Iterable

from pdops.diagnose.context import Context, once
from pdops.diagnose.finding import Weighed
from pdops.diagnose.vitals import blind
from pdops.model.cluster import Role
from pdops.stats.robust import MIN_PEERS

HISTORY_S = 300.0
"""Less history than this tells no usual course (a scrape interval of 15 s gives 20 samples in it)."""
YOUNG_CAP = 0.6
"""Most that anything reaches with neither peers nor history."""
BLIND_CAP = 0.7
"""Most that anything reaches while a worker does not give what it is judged by: two of three such answers were right on the
split that confidence is calibrated on."""
COMPARED = frozenset({"peer", "history"})
_SERVING = (Role.PREFILL, Role.DECODE, Role.COLOCATED)


@once
def grounded(ctx: Context) -> bool:
    """Whether some pool has four peers for each of its workers, or five minutes of history exist."""
    return ctx.view.at_s - ctx.view.start_s >= HISTORY_S or any(len(ctx.units(r)) > MIN_PEERS for r in _SERVING)


def ceiling(ctx: Context) -> float:
    """Return the most that a hypothesis can reach here."""
    if not grounded(ctx):
        return YOUNG_CAP
    # A written case gives what its author knew, and no more is to be had.
    return BLIND_CAP if not ctx.view.relative and blind(ctx) else 1.0


def counting(ctx: Context, evidence: Iterable[Weighed]) -> tuple[Weighed, ...]:
    """Return the evidence that may count: without ground only physics, configuration, logs and probes."""
    if grounded(ctx):
        return tuple(evidence)
    return tuple(w for w in evidence if w.evidence.basis not in COMPARED)
