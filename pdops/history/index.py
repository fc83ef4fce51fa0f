"""Find the columns that make up a series, and make it when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pdops.catalog.binding import Column
from pdops.catalog.load import catalog
from pdops.history.columns import ColumnStore, Rows
from pdops.model.series import Floats, HistogramSeries, Kind, Series
from pdops.model.view import AnySeries, SeriesKey

TrackKey = tuple[str, str]
"""(worker, endpoint) of the page a column came from."""
Stores = tuple[ColumnStore, ColumnStore]
"""The scalar columns and the bucket columns of a page."""


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """Where a series lies: the places of its columns in the stores of a page.

    `buckets` are those of its edges in order of `bounds`; both empty for a gauge or counter, which has no `sum` either.
    """

    track: TrackKey
    kind: Kind
    rate: bool
    at: int | None
    sum: int | None
    buckets: np.ndarray
    bounds: Floats


Index = Mapping[SeriesKey, tuple[_Place, ...]]


def index_of(tracks: Mapping[TrackKey, Stores]) -> Index:
    """Return where every series lies. It holds until a page brings a column that was not there before."""
    found: dict[SeriesKey, list[_Place]] = {}
    known: dict[tuple[float, ...], Floats] = {}
    for key, (scalars, buckets) in tracks.items():
        edges: dict[Column, list[tuple[float, Column]]] = {}
        for column in buckets.columns:
            edges.setdefault(replace(column, part="count"), []).append((float(column.part[3:]), column))
        for column in scalars.columns:
            name = _name(column)
            if name is None:
                continue
            ordered = sorted(edges.get(column, ()))
            # Workers of a kind share their edges, so that to see that they are the same is no work.
            bounds = known.setdefault(tuple(edge for edge, _ in ordered), np.array([edge for edge, _ in ordered]))
            place = _Place(
                track=key,
                kind=_kind(name, column),
                rate=column.rate,
                at=scalars.find(column),
                sum=scalars.find(replace(column, part="sum")),
                buckets=buckets.places(tuple(c for _, c in ordered)),
                bounds=bounds,
            )
            found.setdefault((column.scope or key[0], name), []).append(place)
    return {key: tuple(places) for key, places in found.items()}


class LazySeries(Mapping[SeriesKey, tuple[AnySeries, ...]]):
    """All series of a moment by (scope, signal), each made when it is asked for."""

    def __init__(self, index: Index, tracks: Mapping[TrackKey, Stores]) -> None:
        self._index = index
        self._rows = {key: (scalars.rows(), buckets.rows()) for key, (scalars, buckets) in tracks.items()}
        self._made: dict[SeriesKey, tuple[AnySeries, ...]] = {}

    def __getitem__(self, key: SeriesKey) -> tuple[AnySeries, ...]:
        made = self._made.get(key)
        if made is None:
            made = tuple(_make(place, *self._rows[place.track]) for place in self._index[key])
            self._made[key] = made
        return made

    def get(self, key: SeriesKey, default: Any = None) -> Any:
        """Return the series of a key; most keys that are asked for are not there, and an exception each would cost most."""
        return self[key] if key in self._index else default

    def __contains__(self, key: object) -> bool:
        return key in self._index

    def __iter__(self) -> Iterator[SeriesKey]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)


def _name(column: Column) -> str | None:
    """Return the name a column's series goes by, or None for a part of another one."""
    if column.part.startswith("rank="):
        return f"{column.signal}[{column.part}]"
    if column.part not in ("", "count"):
        return None
    return f"{column.signal}.rate" if column.rate and column.part == "" else column.signal


def _kind(name: str, column: Column) -> Kind:
    if column.part == "count":
        return Kind.HISTOGRAM
    known = catalog().signals.get(name)
    return Kind.COUNTER if known is not None and known.kind is Kind.COUNTER else Kind.GAUGE


def _make(place: _Place, scalars: Rows, buckets: Rows) -> AnySeries:
    if place.kind is not Kind.HISTOGRAM:
        return Series(place.kind, *scalars.column(place.at))
    sum_t, sums, totals = scalars.both(place.sum, place.at)
    t, counts = buckets.matrix(place.buckets) if len(place.buckets) else (np.empty(0), np.empty((0, 0)))
    # Numbers that are no counts are added up in one order only, however they lie.
    counts = counts.copy() if place.rate else counts
    return HistogramSeries(place.bounds, t, counts, sum_t, sums, totals, place.rate)
