"""Which of the workers of one role lie apart from the others."""

from __future__ import annotations

from dataclasses import dataclass

from pdops.diagnose.context import Context, Question
from pdops.model.cluster import POOL_PREFIX, Role
from pdops.model.series import Reading
from pdops.stats.robust import MIN_PEERS, median, outliers


@dataclass(frozen=True, slots=True)
class Deviant:
    """One worker, its reading, what its peers have on the median, and its distance in robust deviations."""

    unit: str
    now: Reading
    usual: float
    z: float

    @property
    def ratio(self) -> float:
        """Its reading over that of its peers; infinite where theirs is zero."""
        return (self.now.value or 0.0) / self.usual if self.usual else float("inf")


@dataclass(frozen=True, slots=True)
class Spread:
    """What `n` workers of one pool said, and those of them that lie apart; `deviants` by name."""

    n: int
    deviants: tuple[Deviant, ...]

    @property
    def known(self) -> bool:
        """Whether there are enough workers to tell: five, four peers for each."""
        return self.n > MIN_PEERS


def spread(ctx: Context, question: Question, role: Role, floor: float) -> Spread:
    """Compare the workers of a role with each other, pool by pool.

    `floor` is the least deviation that counts, in the reading's unit. Bounds are no numbers to compare and are left out.
    """
    n = 0
    found: list[Deviant] = []
    for pool in ctx.cluster.pools(role):
        members = {w.id for w in ctx.cluster.of_pool(pool)}
        readings = {u: question(u, None) for u in ctx.units(role) if u in members and not u.startswith(POOL_PREFIX)}
        values = {u: r.value for u, r in readings.items() if r.value is not None and r.bound is None}
        n = max(n, len(values))
        apart = outliers(values, floor)
        rest = [v for u, v in values.items() if u not in apart]
        usual = median(rest)
        if usual is not None:
            found += [Deviant(u, readings[u], usual, z) for u, z in apart.items()]
    return Spread(n, tuple(sorted(found, key=lambda d: d.unit)))
