"""Turn answers into canonical columns over the steps of a grid; an instant answer is a grid of one step."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pdops.catalog.binding import Column
from pdops.model.cluster import Pair, pool_key
from pdops.model.series import Floats
from pdops.sources.promql.api import Row
from pdops.sources.promql.names import Query, Read

_UNSAFE = re.compile(r"[^A-Za-z0-9._:/-]")
_SERVING = frozenset({"vllm", "sglang", "dynamo", "trtllm"})
"""Engines of which a worker runs one; pages of other kinds stand beside them."""
_NOISE = 1e-6
"""Relative fall between the rates of neighbouring buckets that is rounding, not a contradiction."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Moments `start_s`, `start_s + step_s`, … in Unix seconds of the server."""

    start_s: float
    step_s: float = 1.0
    n: int = 1

    @property
    def end_s(self) -> float:
        """The last moment."""
        return self.start_s + (self.n - 1) * self.step_s

    def lay(self, row: Row) -> Floats:
        """Return a row's values at the moments, NaN where it has none."""
        out = np.full(self.n, np.nan)
        if self.n == 1:
            out[0] = row.v[-1] if len(row.v) else np.nan
            return out
        at = np.rint((row.t - self.start_s) / self.step_s).astype(np.intp)
        inside = (at >= 0) & (at < self.n)
        out[at[inside]] = row.v[inside]
        return out


class Places(Protocol):
    """Whom labels mean."""

    def pool(self, value: str) -> str | None:
        """Return the pool a label value stands for, or None."""
        ...

    def target(self, instance: str) -> str | None:
        """Return the worker that a target is, or None."""
        ...

    def resolve(self, label: str) -> str:
        """Return the worker id for a label that names one by id or address; another label as it is."""
        ...


class Collector:
    """Adds answers up by column, apart for each candidate, and then lets the first candidate win."""

    def __init__(self, places: Places, grid: Grid) -> None:
        self._places = places
        self._grid = grid
        self._found: dict[tuple[str, str], dict[int, dict[Column, Floats]]] = {}
        self._engines: dict[tuple[str, str], dict[int, str]] = {}
        self.mixed: list[Column] = []
        self.differing: list[Column] = []

    def add(self, query: Query, rows: Iterable[Row], label: str | None) -> None:
        """Take in one answer; `label` is the label that stands for pools, unless the query names its pool."""
        for row in rows:
            values: Floats | None = None
            for read in query.reads:
                if not _meant(read, row):
                    continue
                scope = self._scope(query, read, row, label)
                column = _column(scope, read, row) if scope is not None else None
                if column is None:
                    continue
                values = self._grid.lay(row) if values is None else values
                self._put(column, read, values)

    def _scope(self, query: Query, read: Read, row: Row, label: str | None) -> str | None:
        key = read.candidate.spec.key
        if read.by_target:
            return self._places.target(row.labels.get("instance", ""))
        if key.scope is not None:
            return key.scope
        if key.worker is not None:
            return self._worker(row, key.worker)
        if key.pair is not None:
            src, dst = (self._worker(row, name) for name in key.pair)
            return Pair(src, dst).key if src and dst else None
        pool = query.pool if query.pool is not None else self._places.pool(row.labels.get(label or "", ""))
        return pool_key(pool) if pool is not None else None

    def _worker(self, row: Row, label: str) -> str | None:
        given = row.labels.get(label)
        return _UNSAFE.sub("_", self._places.resolve(given)) if given else None

    def _put(self, column: Column, read: Read, values: Floats) -> None:
        candidate = read.candidate
        scaled = values if read.part in ("count", "bucket") else values * candidate.spec.scale
        key = (column.scope, column.signal)
        self._engines.setdefault(key, {})[candidate.rank] = candidate.engine
        columns = self._found.setdefault(key, {}).setdefault(candidate.rank, {})
        before = columns.get(column)
        if before is None:
            columns[column] = scaled
        elif candidate.adds:
            both = ~np.isnan(before) & ~np.isnan(scaled)
            columns[column] = np.where(both, before + scaled, np.where(np.isnan(before), scaled, before))
        else:
            columns[column] = np.fmax(before, scaled)

    def columns(self) -> dict[Column, Floats]:
        """Return every column (n,), NaN where nothing is known.

        `mixed` then names a column where another serving engine had data too, `differing` the histograms whose buckets
        contradict each other and were left out.
        """
        out: dict[Column, Floats] = {}
        for key, ranks in self._found.items():
            alive = [r for r in sorted(ranks) if any(np.isfinite(v).any() for v in ranks[r].values())]
            if not alive:
                continue
            chosen = ranks[alive[0]]
            if len({self._engines[key][r] for r in alive} & _SERVING) > 1:
                self.mixed.append(next(iter(chosen)))
            edges = sorted((float(c.part[3:]), c) for c in chosen if c.part.startswith("le="))
            out.update((c, v) for c, v in chosen.items() if not c.part.startswith("le="))
            if edges:
                self._histogram(out, [c for _, c in edges], np.array([chosen[c] for _, c in edges]))
        return out

    def _histogram(self, out: dict[Column, Floats], edges: list[Column], counts: Floats) -> None:
        last = edges[-1]
        if last.part != "le=inf":
            self.differing.append(last)
            return
        out[Column(last.scope, last.signal, "count", last.rate)] = counts[-1].copy()
        # An edge that only some workers have makes the sums fall from one edge to the next.
        falls = np.diff(counts, axis=0) < -_NOISE * np.nan_to_num(counts[-1])
        gone = np.isnan(counts).any(axis=0)
        wrong = falls.any(axis=0) & ~gone
        if wrong.any():
            self.differing.append(last)
        rising = np.maximum.accumulate(counts, axis=0)
        rising[:, wrong | gone] = np.nan
        out.update(zip(edges, rising, strict=True))


def _meant(read: Read, row: Row) -> bool:
    if read.names and row.labels.get("__name__") not in read.names:
        return False
    if read.by_target and not read.names:
        return True
    match = read.candidate.spec.match
    return all(re.fullmatch(pattern, row.labels.get(label, "")) for label, pattern in match.items())


def _column(scope: str, read: Read, row: Row) -> Column | None:
    signal = read.candidate.signal.name
    if read.part != "bucket":
        return Column(scope, signal, read.part, read.rate)
    try:
        edge = float(row.labels["le"]) * read.candidate.spec.scale
    except (KeyError, ValueError):
        return None
    return Column(scope, signal, f"le={edge:.10g}", read.rate)
