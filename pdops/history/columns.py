"""A growing matrix of samples with named columns that forgets its oldest rows.

A column lies in one piece, since questions are about few columns and many rows. One that was the same in every row, as
counts of failures and limits are, is kept as one number and read without being written out.
"""

from __future__ import annotations

import numpy as np

from pdops.catalog.binding import Column
from pdops.model.series import Floats

_SLACK = 1.0625
"""Rows kept beyond the capacity before the oldest are dropped in one copy."""
_FIRST_ROWS = 64


class Rows:
    """The rows of a store at one moment. Columns go by their place; None, or one that came later, has no sample.

    Args:
        t: times (k,).
        varied: values (m, k) of the columns that are not the same in every row.
        where: for each place the row in `varied`, -1 for a column that is the same in every row.
        same: for each place the value of such a column.
    """

    __slots__ = ("_same", "_t", "_varied", "_where")

    def __init__(self, t: Floats, varied: Floats, where: np.ndarray, same: Floats) -> None:
        self._t, self._varied, self._where, self._same = t, varied, where, same

    def _values(self, place: int) -> Floats:
        at = self._where[place]
        if at >= 0:
            return self._varied[at]  # type: ignore[no-any-return]
        return np.ndarray(len(self._t), float, self._same, place * self._same.itemsize, (0,))

    def column(self, place: int | None) -> tuple[Floats, Floats]:
        """Return times and values of the samples that exist."""
        if place is None or place >= len(self._where):
            return np.empty(0), np.empty(0)
        values = self._values(place)
        missing = np.isnan(values)
        if not np.count_nonzero(missing):
            return self._t, values
        return self._t[~missing], values[~missing]

    def both(self, one: int | None, other: int | None) -> tuple[Floats, Floats, Floats]:
        """Return times and the values of two columns where both have a sample."""
        if one is None or other is None or max(one, other) >= len(self._where):
            return np.empty(0), np.empty(0), np.empty(0)
        first, second = self._values(one), self._values(other)
        missing = np.isnan(first) | np.isnan(second)
        if not np.count_nonzero(missing):
            return self._t, first, second
        return self._t[~missing], first[~missing], second[~missing]

    def matrix(self, places: np.ndarray) -> tuple[Floats, Floats]:
        """Return times (k,) and values (k, m) of the rows where all these columns have a sample."""
        where = self._where[places]
        varied = where >= 0
        whole = np.repeat(self._same[places][:, None], len(self._t), axis=1)
        whole[varied] = self._varied[where[varied]]
        values = whole.T
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
        self._rows = 0
        self._same = np.empty(0)
        self._where = np.empty(0, dtype=np.intp)
        # The columns of `_varied`, in its order.
        self._moving = np.empty(0, dtype=np.intp)
        self._varied = np.empty((0, _FIRST_ROWS))

    def __len__(self) -> int:
        return self._rows

    @property
    def last_t(self) -> float | None:
        """Time of the newest row in Unix seconds, or None."""
        return float(self._t[self._rows - 1]) if self._rows else None

    def places(self, columns: tuple[Column, ...]) -> np.ndarray:
        """Return the matrix places of these columns, making room for new ones."""
        for column in columns:
            self._index.setdefault(column, len(self._index))
        new = len(self._index) - len(self._same)
        if new:
            self._same = np.append(self._same, np.full(new, np.nan))
            self._where = np.append(self._where, np.full(new, -1))
        return np.array([self._index[c] for c in columns], dtype=np.intp)

    def append(self, at_s: float, places: np.ndarray, values: Floats) -> None:
        """Write one row; `at_s` must be later than the newest row."""
        if self._rows == len(self._t):
            self._make_room()
        new = np.full(len(self._same), np.nan)
        new[places] = values
        if not self._rows:
            self._same = new
        # Compared by their bits, so that a gap is the same as a gap.
        differs = new.view(np.int64) != self._same.view(np.int64)
        differs[self._moving] = False
        if differs.any():
            self._write_out(np.flatnonzero(differs))
        self._t[self._rows] = at_s
        self._varied[:, self._rows] = new[self._moving]
        self._rows += 1

    def _write_out(self, columns: np.ndarray) -> None:
        """Give columns that were the same so far a place among those that are not."""
        known, rows = len(self._varied), self._rows
        varied = np.empty((known + len(columns), len(self._t)))
        varied[:known, :rows] = self._varied[:, :rows]
        varied[known:, :rows] = self._same[columns][:, None]
        self._hold(varied, np.append(self._moving, columns))

    def _hold(self, varied: Floats, moving: np.ndarray) -> None:
        self._varied, self._moving = varied, moving
        self._where = np.full(len(self._same), -1)
        self._where[moving] = np.arange(len(moving))

    def shift(self, by_s: float) -> None:
        """Move the times of all rows; rows handed out earlier keep theirs."""
        self._t = self._t + by_s

    def rows(self) -> Rows:
        """Return the rows there are now; later ones do not show in it."""
        return Rows(self._t[: self._rows], self._varied[:, : self._rows], self._where, self._same)

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
        first = self._rows - keep
        kept = self._varied[:, first : self._rows]
        bits = kept.view(np.int64)
        rest = (bits == bits[:, :1]).all(axis=1)
        self._same = self._same.copy()
        self._same[self._moving[rest]] = kept[rest, 0]
        varied = np.empty((np.count_nonzero(~rest), rows))
        varied[:, :keep] = kept[~rest]
        t = np.empty(rows)
        t[:keep] = self._t[first : self._rows]
        self._t, self._rows = t, keep
        self._hold(varied, self._moving[~rest])
