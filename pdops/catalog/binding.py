"""Turn the series of one page into canonical columns.

A Binding is derived once per layout and applied to every scrape with that layout, so the per-scrape cost is a few
vector operations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pdops.catalog.load import catalog
from pdops.catalog.names import HISTOGRAM_SUFFIXES, INFO_FAMILIES, canonical_name, split_series
from pdops.catalog.types import SignalSpec, SourceSpec
from pdops.model.cluster import Pair
from pdops.model.frame import Layout, Values
from pdops.model.series import Kind

CANONICAL = "canonical"
"""Engine of pages whose series already carry canonical names, with labels `scope` and `le`."""

_MAX_UNITS = frozenset({"ratio", "bool", "state"})
_RATE = ":rate"


@dataclass(frozen=True, slots=True, order=True)
class Column:
    """One canonical column.

    `scope` is empty for the scraped worker itself. `part` is empty for a gauge or counter, `sum`, `count` or `le=EDGE`
    for a histogram, `rank=R` for one rank of a gauge that several ranks export. `rate` columns are per second already.
    """

    scope: str
    signal: str
    part: str = ""
    rate: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """How the values of a layout become canonical columns.

    `plain` (n,) marks the gauges and counters, which are never negative; sums of histograms may be. `_ages` are the
    sources that are Unix times.
    """

    columns: tuple[Column, ...]
    facts: Mapping[str, str]
    escaped: tuple[str, ...]
    plain: np.ndarray
    _order: np.ndarray
    _starts: np.ndarray
    _max: np.ndarray
    _scale: np.ndarray
    _ages: np.ndarray

    def apply(self, values: Values, at_s: float = math.nan) -> Values:
        """Return one value per column, in canonical units; NaN where the page said NaN.

        Args:
            values: of the page, in the order of its layout.
            at_s: when the page was read, in Unix seconds; without it ages are NaN.
        """
        if not self.columns:
            return np.empty(0)
        picked = values[self._order]
        if len(self._ages):
            # Clocks of two hosts differ a little, and nothing waits since tomorrow.
            since = picked[self._ages]
            picked[self._ages] = np.where(since == 0.0, 0.0, np.maximum(0.0, at_s - since))
        out: Values = np.add.reduceat(picked, self._starts)
        if self._max.any():
            out = np.where(self._max, np.maximum.reduceat(picked, self._starts), out)
        result: Values = out * self._scale
        return result


class _Draft:
    """Collects, per column, the source indexes, scale and how they combine."""

    def __init__(self) -> None:
        self.columns: dict[Column, tuple[list[int], float, bool]] = {}
        self.ages: set[Column] = set()

    def add(self, column: Column, index: int, scale: float, use_max: bool) -> None:
        entry = self.columns.setdefault(column, ([], scale, use_max))
        entry[0].append(index)

    def build(self, facts: Mapping[str, str], escaped: tuple[str, ...]) -> Binding:
        columns = tuple(self.columns)
        groups = [self.columns[c] for c in columns]
        sizes = [len(g[0]) for g in groups]
        ages = np.repeat(np.array([c in self.ages for c in columns], dtype=bool), sizes)
        return Binding(
            columns=columns,
            facts=facts,
            escaped=escaped,
            plain=np.array([not c.part or c.part.startswith("rank=") for c in columns], dtype=bool),
            _order=np.array([i for g in groups for i in g[0]], dtype=np.intp),
            _starts=np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.intp) if sizes else np.empty(0, np.intp),
            _max=np.array([g[2] for g in groups], dtype=bool),
            _scale=np.array([g[1] for g in groups], dtype=np.float64),
            _ages=np.flatnonzero(ages),
        )


_Entry = tuple[int, dict[str, str]]
Resolve = Callable[[str], str]


def bind(engine: str, layout: Layout, resolve: Resolve = lambda label: label) -> Binding:
    """Derive the binding of a page.

    Args:
        engine: key of the catalog's engines, or `canonical`.
        layout: the page's series; a name that cannot be read is left out.
        resolve: maps a label value that names a worker (id or URL) to a worker id.
    """
    families: dict[str, list[_Entry]] = {}
    facts: dict[str, str] = {}
    escaped: list[str] = []
    for index, series in enumerate(layout.series):
        try:
            name, labels = split_series(series)
        except ValueError:
            continue
        name, was_escaped = canonical_name(name)
        if was_escaped:
            escaped.append(name)
        if name in INFO_FAMILIES:
            facts.update({k: v for k, v in labels.items() if k != "engine"})
        families.setdefault(name, []).append((index, labels))
    draft = _Draft()
    if engine == CANONICAL:
        _bind_canonical(draft, families)
    else:
        engines = (engine, "pdops_plugin") if engine == "vllm" else (engine,)
        for signal in catalog().signals.values():
            for name in engines:
                _bind_signal(draft, signal, signal.sources.get(name, ()), families, resolve)
    return draft.build(facts, tuple(escaped))


def _bind_signal(
    draft: _Draft,
    signal: SignalSpec,
    sources: tuple[SourceSpec, ...],
    families: Mapping[str, list[_Entry]],
    resolve: Resolve,
) -> None:
    for spec in sources:
        found = _parts(spec, signal.kind, families)
        if not found:
            continue
        use_max = spec.age or signal.unit in _MAX_UNITS or signal.name == "process_start_seconds"
        ranks: dict[str, dict[str, int]] = {}
        for part, index, labels in found:
            scope = _scope(spec, labels, resolve)
            scale = 1.0 if part == "count" or part.startswith("le=") else spec.scale
            column = Column(scope, signal.name, _scaled_edge(part, spec.scale))
            draft.add(column, index, scale, use_max)
            if spec.age:
                draft.ages.add(column)
            if use_max and "engine" in labels:
                ranks.setdefault(scope, {})[labels["engine"]] = index
        for scope, by_rank in ranks.items():
            if len(by_rank) > 1:
                for rank, index in by_rank.items():
                    column = Column(scope, signal.name, f"rank={rank}")
                    draft.add(column, index, spec.scale, True)
                    if spec.age:
                        draft.ages.add(column)
        return


def _parts(spec: SourceSpec, kind: Kind, families: Mapping[str, list[_Entry]]) -> list[tuple[str, int, dict[str, str]]]:
    """Return (part, index, labels) of every series of a source that is on the page and matches."""
    if spec.metric is None:
        return []
    if spec.kind in ("histogram", "summary"):
        if kind is Kind.HISTOGRAM:
            wanted = {spec.metric + s: s[1:] for s in HISTOGRAM_SUFFIXES}
        else:
            wanted = {f"{spec.metric}_{spec.take or 'sum'}": ""}
    elif kind is Kind.HISTOGRAM:
        return []
    else:
        wanted = {spec.metric: ""}
    found = []
    for name, part in wanted.items():
        for index, labels in families.get(name, ()):
            if not all(re.fullmatch(pattern, labels.get(label, "")) for label, pattern in spec.match.items()):
                continue
            full = f"le={float(labels['le']):.10g}" if part == "bucket" and "le" in labels else part
            found.append((full, index, labels))
    return found


def _scaled_edge(part: str, scale: float) -> str:
    return f"le={float(part[3:]) * scale:.10g}" if scale != 1.0 and part.startswith("le=") else part


def _scope(spec: SourceSpec, labels: Mapping[str, str], resolve: Resolve) -> str:
    key = spec.key
    if key.scope is not None:
        return key.scope
    if key.worker is not None:
        return resolve(labels.get(key.worker, "?"))
    if key.pair is not None:
        src, dst = key.pair
        return Pair(resolve(labels.get(src, "?")), resolve(labels.get(dst, "?"))).key
    return ""


def canonical_series(column: Column) -> str:
    """Return the series name that a canonical page uses for a column."""
    name = column.signal + (_RATE if column.rate else "")
    kind: Literal["_sum", "_count", "_bucket", ""] = ""
    labels = f'scope="{column.scope}"'
    if column.part in ("sum", "count"):
        kind = "_sum" if column.part == "sum" else "_count"
    elif column.part.startswith("le="):
        kind = "_bucket"
        labels += f',le="{column.part[3:]}"'
    return f"{name}{kind}{{{labels}}}"


def _bind_canonical(draft: _Draft, families: Mapping[str, list[_Entry]]) -> None:
    signals = catalog().signals
    for name, entries in families.items():
        base, part = name, ""
        for suffix in HISTOGRAM_SUFFIXES:
            stem = name.removesuffix(suffix)
            known = signals.get(stem.removesuffix(_RATE))
            if stem != name and known is not None and known.kind is Kind.HISTOGRAM:
                base, part = stem, suffix[1:]
        rate = base.endswith(_RATE)
        signal = base.removesuffix(_RATE)
        if signal.rpartition(".")[0] not in signals and signal not in signals:
            continue
        for index, labels in entries:
            full = f"le={float(labels['le']):.10g}" if part == "bucket" else part
            draft.add(Column(labels.get("scope", ""), signal, full, rate), index, 1.0, False)
