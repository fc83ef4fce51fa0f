"""Say which of the catalog's sources a server has, and how they can be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pdops.catalog.load import catalog
from pdops.catalog.types import SignalSpec, SourceSpec
from pdops.model.cluster import Role
from pdops.model.series import Kind
from pdops.sources.promql.selector import Selector, any_of

_NAMES_PER_QUERY = 5_000
"""Characters of names in one discovery question; VictoriaMetrics refuses queries over 16 kB."""
_ADDS = frozenset({"requests", "tokens", "bytes", "transfers", "objects", "events", "workers", "notifications"})

Part = Literal["", "sum", "count", "bucket"]


@dataclass(frozen=True, slots=True)
class Group:
    """Where a pool's series are: grouped by a `label` whose values stand for pools, or all of one `pool`.

    `roles` gives the role of each label value, or of the pool.
    """

    selector: Selector
    roles: Mapping[str, Role]
    label: str | None = None
    pool: str | None = None

    @property
    def by(self) -> tuple[str, ...]:
        """The labels to group by."""
        return (self.label,) if self.label is not None else ()

    def only(self, role: Role) -> Selector | None:
        """Return a selector for the series of one role, or None when this group has none."""
        mine = [value for value, known in self.roles.items() if known is role]
        if not mine:
            return None
        return self.selector.plus(self.label, "=~", any_of(sorted(mine))) if self.label is not None else self.selector


@dataclass(frozen=True, slots=True)
class Candidate:
    """Sources of one engine for one signal that can be read alike. `names` are stems that exist on the server.

    `rank` orders the candidates of a signal; the first that a pool has wins.
    """

    signal: SignalSpec
    engine: str
    spec: SourceSpec
    rank: int
    names: tuple[str, ...]

    @property
    def adds(self) -> bool:
        """Whether values of several workers add up; else the greatest counts."""
        return self.signal.kind is not Kind.GAUGE or self.signal.unit in _ADDS

    def samples(self, part: Part) -> tuple[str, ...]:
        """Return the sample names that hold a part."""
        if self.spec.kind in ("histogram", "summary"):
            return tuple(f"{n}_{part or self.spec.take or 'sum'}" for n in self.names)
        return self.names


@dataclass(frozen=True, slots=True)
class Read:
    """How rows of an answer become columns: those of `names` (any, when empty) whose labels `match`."""

    candidate: Candidate
    part: Part = ""
    rate: bool = True
    names: frozenset[str] = frozenset()
    by_target: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """One question. `about` names it in messages; `pool` is set when the question itself selects one pool."""

    about: str
    expr: str
    reads: tuple[Read, ...]
    pool: str | None = None


def candidates(present: Mapping[str, int]) -> tuple[Candidate, ...]:
    """Return what can be read, given the sample names that exist with their number of series.

    Both spellings of a name with a colon count as the same source.
    """
    engines = list(catalog().engines)
    found: list[Candidate] = []
    for signal in catalog().signals.values():
        rank = 0
        for engine in sorted(signal.sources, key=engines.index):
            last: Candidate | None = None
            for spec in signal.sources[engine]:
                names = tuple(n for n in _spellings(spec.metric) if probe(spec, n) in present)
                if not names or not _usable(spec, signal.kind):
                    continue
                if last is not None and _shape(last.spec) == _shape(spec):
                    last = Candidate(signal, engine, last.spec, last.rank, (*last.names, *names))
                    found[-1] = last
                    continue
                last = Candidate(signal, engine, spec, rank, names)
                found.append(last)
                rank += 1
    return tuple(found)


def discovery(group: Group) -> tuple[Query, ...]:
    """Return the questions that tell which names exist, by pool label; buckets are not touched."""
    names: set[str] = set()
    for signal in catalog().signals.values():
        for specs in signal.sources.values():
            for spec in specs:
                if _usable(spec, signal.kind):
                    names.update(probe(spec, n) for n in _spellings(spec.metric))
    by = ",".join(("__name__", *group.by))
    chunks: list[list[str]] = [[]]
    size = 0
    for name in sorted(names):
        if size + len(name) > _NAMES_PER_QUERY:
            chunks.append([])
            size = 0
        chunks[-1].append(name)
        size += len(name) + 1
    return tuple(
        Query("names", f"count by ({by}) ({group.selector.plus('__name__', '=~', any_of(chunk)).of()})", (), group.pool)
        for chunk in chunks
    )


def _usable(spec: SourceSpec, kind: Kind) -> bool:
    # Every target has an `up` of the server's own; it is read as presence.
    if spec.metric is None or spec.metric == "up":
        return False
    # A time becomes an age by the moment it was read, which differs between the samples of a range.
    if spec.age:
        return False
    if kind is Kind.GAUGE:
        return spec.kind == "gauge"
    if kind is Kind.COUNTER:
        return spec.kind != "gauge"
    return spec.kind in ("histogram", "summary")


def _shape(spec: SourceSpec) -> tuple[object, ...]:
    return (spec.kind, spec.take, tuple(spec.match.items()), spec.scale, spec.key)


def _spellings(metric: str | None) -> tuple[str, ...]:
    if metric is None:
        return ()
    return (metric, metric.replace(":", "_")) if ":" in metric else (metric,)


def probe(spec: SourceSpec, name: str) -> str:
    """Return the sample name whose existence stands for a source under one spelling of its name."""
    return f"{name}_count" if spec.kind in ("histogram", "summary") else name
