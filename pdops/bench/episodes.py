"""Which episodes are played: a seeded walk over kinds × severities × workloads × topologies, and what is true in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from pdops.bench.grid import SEVERITIES, Grid, Kind, Kinds, Severity, Sound, Split, Topology, WorkloadName, grid

HEALTHY_SHARE = 0.32
"""Share of episodes without a fault; at least 0.3 was promised."""
DOUBLE_SHARE = 0.15
"""Share of fault episodes with a second, unrelated fault."""
MISSING_SHARE = 0.2
"""Share of all episodes in which metrics are missing."""
MISSING_RATIO = (0.1, 0.4)
"""Range of the share of metrics that is then missing."""
_SECOND_AFTER_S = 45.0
_LEAST_EACH = 3
"""Episodes that every topology gets in a run that is large enough, however little it weighs: one never played is one never
judged."""
_SPREAD = 30
"""One such episode for so many of the run."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One play of the simulator.

    `faults` are none for a healthy look-alike, which `sound` then names, else one or two kinds. Times are virtual
    seconds from the first frame; `second_after_s` is how much later the second fault begins.
    """

    number: int
    split: Split
    faults: tuple[Kind, ...]
    sound: Sound | None
    severity: Severity
    workload: WorkloadName
    topology: str
    seed: int
    at_s: float
    until_s: float
    second_after_s: float = 0.0
    missing_ratio: float = 0.0
    unseen: bool = False

    @property
    def name(self) -> str:
        """What the episode is called in reports and in the seeds of its draws."""
        what = "+".join(k.id for k in self.faults) or (self.sound.id if self.sound else "quiet")
        return f"{self.split}/{what}/{self.severity}/{self.workload}/{self.topology}/{self.seed}"

    def rng(self, purpose: str) -> Random:
        """Return a generator that depends on the episode and the purpose only."""
        return Random(f"{self.name}/{purpose}")  # noqa: S311  a draw, not a secret


def plan(
    split: Split,
    count: int,
    *,
    given: Kinds,
    unseen: Sequence[Kind] = (),
    seed: int = 0,
    topologies: Sequence[str] = (),
    on: Grid | None = None,
    healthy_share: float = HEALTHY_SHARE,
) -> tuple[Episode, ...]:
    """Choose `count` episodes of a split: every kind as often as any other, severities and workloads in turn.

    Args:
        split: whose parameter family is used.
        count: how many.
        given: kinds and look-alikes that every split has.
        unseen: kinds that only this split has.
        seed: another seed gives other draws of the same grid.
        topologies: names to use, or all of the grid, drawn by their weights.
        on: the grid, by default the shipped one.
        healthy_share: share of episodes without a fault, 0-1.
    """
    on = on or grid()
    rng = Random(f"{split}/{seed}")  # noqa: S311  a draw, not a secret
    places = {name: t for name, t in on.topologies.items() if not topologies or name in topologies}
    healthy = round(count * healthy_share)
    missing = _flags(count, MISSING_SHARE, rng)
    doubles = _flags(count - healthy, DOUBLE_SHARE, rng)
    fresh = {k.id for k in unseen}
    fitting = [k for k in (*given.kinds, *unseen) if _places(k, places)]
    sounds = [s for s in given.healthy if _places(s, places)]
    least = min(_LEAST_EACH, count // _SPREAD)
    drawn: Counter[str] = Counter()
    found: list[Episode] = []
    for number in range(count):
        is_fault = number < count - healthy
        turn = number if is_fault else number - (count - healthy)
        what: Kind | Sound = _turn(fitting, turn) if is_fault else _turn(sounds, turn)
        round_ = turn // len(fitting if is_fault else sounds)
        fit = _places(what, places)
        topology = rng.choices(list(fit), [t.weight for t in fit.values()])[0]
        owed = (least * (number + 1) + count // 2) // count
        topology = next((name for name in fit if drawn[name] < owed), topology)
        drawn[topology] += 1
        workload: WorkloadName = _turn(what.workloads or tuple(on.workloads), round_ + turn // len(SEVERITIES))
        place = places[topology]
        at_s = place.before_s + rng.uniform(0.0, 15.0)
        faults: tuple[Kind, ...] = ()
        if isinstance(what, Kind):
            faults = (what, *_second(what, fitting, topology, workload, places, rng)) if doubles[number] else (what,)
        found.append(
            Episode(
                number=number,
                split=split,
                faults=faults,
                sound=what if isinstance(what, Sound) else None,
                severity=_turn(SEVERITIES, round_ + turn),
                workload=workload,
                topology=topology,
                seed=seed * 100_000 + number,
                at_s=at_s,
                until_s=place.before_s + place.after_s,
                second_after_s=rng.uniform(0.0, _SECOND_AFTER_S) if len(faults) > 1 else 0.0,
                missing_ratio=rng.uniform(*MISSING_RATIO) if missing[number] else 0.0,
                unseen=any(k.id in fresh for k in faults),
            )
        )
    return tuple(found)


def cell_count(given: Sequence[Kind], on: Grid | None = None) -> int:
    """Return how many cells the whole grid has."""
    on = on or grid()
    return sum(len(_places(k, on.topologies)) * len(k.workloads or on.workloads) * len(SEVERITIES) for k in given)


def _second(
    first: Kind,
    kinds: Sequence[Kind],
    topology: str,
    workload: str,
    places: dict[str, Topology],
    rng: Random,
) -> tuple[Kind, ...]:
    """Draw an unrelated fault: another layer, other primitives, and playable in the same cell."""
    primitives = {f.kind for f in first.faults}
    fit = [
        k
        for k in kinds
        if k.truth.layers_ok[0] is not first.truth.layers_ok[0]
        and not primitives & {f.kind for f in k.faults}
        and topology in _places(k, places)
        and (not k.workloads or workload in k.workloads)
        and k.moves == "requests"
    ]
    return (rng.choice(fit),) if fit else ()


def _places(what: Kind | Sound, places: dict[str, Topology]) -> dict[str, Topology]:
    return {name: t for name, t in places.items() if t.has(what.needs) and name in (what.topologies or places)}


def _flags(count: int, share: float, rng: Random) -> list[bool]:
    flags = [i < round(count * share) for i in range(count)]
    rng.shuffle(flags)
    return flags


def _turn(items: Sequence[T], turn: int) -> T:
    return items[turn % len(items)]
