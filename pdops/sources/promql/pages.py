"""Put canonical columns on pages, with as few layouts as possible: a layout that stays is bound once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pdops.catalog.binding import Column, canonical_series
from pdops.model.frame import Layout, Values
from pdops.model.series import Floats

_MAX_LAYOUTS = 64


class GrowingPage:
    """A page whose `columns` stay once seen; a value that is not given is NaN."""

    def __init__(self) -> None:
        self.columns: tuple[Column, ...] = ()
        self._layout = Layout(())

    def lay(self, columns: Mapping[Column, Floats]) -> tuple[Layout, Values]:
        """Return the layout, and the values (steps, series)."""
        new = sorted(c for c in columns if c not in set(self.columns))
        if new:
            self.columns = (*self.columns, *new)
            self._layout = Layout(tuple(canonical_series(c) for c in self.columns))
        steps = len(next(iter(columns.values()))) if columns else 0
        values = np.full((steps, len(self.columns)), np.nan)
        for place, column in enumerate(self.columns):
            given = columns.get(column)
            if given is not None:
                values[:, place] = given
        return self._layout, values


class LoosePage:
    """A page whose columns come and go, as the worst workers do."""

    def __init__(self) -> None:
        self._layouts: dict[tuple[Column, ...], Layout] = {}

    def lay(self, columns: Mapping[Column, float]) -> tuple[Layout, Values]:
        """Return the layout and the values (series,) of one step."""
        names = tuple(sorted(columns))
        layout = self._layouts.pop(names, None) or Layout(tuple(canonical_series(c) for c in names))
        self._layouts[names] = layout
        if len(self._layouts) > _MAX_LAYOUTS:
            del self._layouts[next(iter(self._layouts))]
        return layout, np.array([columns[c] for c in names])
