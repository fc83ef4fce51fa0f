"""A growing matrix of samples with named columns that forgets its oldest rows.

A column lies in one piece, since questions are about few columns and many rows.
"""

from __future__ import annotations

import numpy as np

from pdops.catalog.binding import Column
from pdops.model.series import Floats

_SLACK = 1.25
"""Rows kept beyond the capacity before the oldest are dropped in one copy."""
_FIRST_ROWS = 64


class Rows:
    """The rows of a store at one moment. Columns go by their place; None, or one that came later, has no sample."""

    __slots__ = ("_data", "_t")

    def __init__(self, t: Floats, data: Floats) -> None:
        self._t = t
        self._data = data

    def column(self, place: int | None) -> tuple[Floats, Floats]:
        """Return times and values of the samples that exist."""
        if place is None or place >= len(self._data):
            return np.empty(0), np.empty(0)
        values = self._data[place]
        missing = np.isnan(values)
        if not np.count_nonzero(missing):
            return self._t, values
        return self._t[~missing], values[~missing]

    def both(self, one: int | None, other: int | None) -> tuple[Floats, Floats, Floats]:
        """Return times and the values of two columns where both have a sample."""
        if one is None or other is None or max(one, other) >= len(self._data):
            return np.empty(0), np.empty(0), np.empty(0)
        first, second = self._data[one], self._data[other]
        missing = np.isnan(first) | np.isnan(second)
        if not np.count_nonzero(missing):
            return self._t, first, second
        return self._t[~missing], first[~missing], second[~missing]

    def matrix(self, places: np.ndarray) -> tuple[Floats, Floats]:
        """Return times (k,) and values (k, m) of the rows where all these columns have a sample."""
        values = self._data[places].T
        missing = np.isnan(values)
        if not np.count_nonzero(missing):
            return self._t, values
        there = ~missing.any(axis=1)
        return self._t[there], values[there]


class ColumnStore:
    """Rows in order of time, NaN where a column had no sample; at most `capacity` of them, and none much older than `span_s`.

    Rows are never changed once written, and growing or forgetting makes new arrays, so slices handed out earlier stay
    what they were.
    """

    def __init__(self, capacity: int, span_s: float = float("inf")) -> None:
        self._capacity = max(2, capacity)
        self._span_s = span_s
        self._index: dict[Column, int] = {}
        self._t = np.empty(_FIRST_ROWS)
        self._data = np.empty((0, _FIRST_ROWS))
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def last_t(self) -> float | None:
        """Time of the newest row in Unix seconds, or None."""
        return float(self._t[self._rows - 1]) if self._rows else None

    def places(self, columns: tuple[Column, ...]) -> np.ndarray:
        """Return the matrix places of these columns, making room for new ones."""
        new = [c for c in columns if c not in self._index]
        if new:
            for column in new:
                self._index.setdefault(column, len(self._index))
            wider = np.full((len(self._index), len(self._t)), np.nan)
            wider[: len(self._data), : self._rows] = self._data[:, : self._rows]
            self._data = wider
        return np.array([self._index[c] for c in columns], dtype=np.intp)

    def append(self, at_s: float, places: np.ndarray, values: Floats) -> None:
        """Write one row; `at_s` must be later than the newest row."""
        if self._rows == len(self._t):
            self._make_room()
        row = self._rows
        self._t[row] = at_s
        self._data[:, row] = np.nan
        self._data[places, row] = values
        self._rows += 1

    def shift(self, by_s: float) -> None:
        """Move the times of all rows; rows handed out earlier keep theirs."""
        self._t = self._t + by_s

    def rows(self) -> Rows:
        """Return the rows there are now; later ones do not show in it."""
        return Rows(self._t[: self._rows], self._data[:, : self._rows])

    def find(self, column: Column) -> int | None:
        """Return the place of a column, which it keeps, or None for one that was never seen."""
        return self._index.get(column)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns ever seen, in order of appearance."""
        return tuple(self._index)

    def _make_room(self) -> None:
        limit = max(self._capacity + 1, int(self._capacity * _SLACK))
        old = int(np.searchsorted(self._t[: self._rows], self._t[self._rows - 1] - self._span_s))
        keep = self._rows - old if len(self._t) < limit else min(self._rows - old, self._capacity)
        grown = len(self._t) * 2 if keep == self._rows else int(keep * _SLACK) + 1
        rows = min(limit, max(_FIRST_ROWS, grown))
        t = np.empty(rows)
        data = np.full((len(self._index), rows), np.nan)
        t[:keep] = self._t[self._rows - keep : self._rows]
        data[:, :keep] = self._data[:, self._rows - keep : self._rows]
        self._t, self._data, self._rows = t, data, keep
