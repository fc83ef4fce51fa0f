"""Keep counters counting: a restart of an engine or of the exporter never makes a negative step or a spike."""

from __future__ import annotations

import numpy as np

from pdops.model.frame import Layout, Scrape, Values

_COUNT, _SUM = "_count", "_sum"


class Counters:
    """The growth of every series of one page since this process first saw it.

    Totals start at zero, as those of any process do, so a restart of the exporter is an ordinary counter reset. A value
    that falls counts in full, since the engine began again from zero. A histogram's sum that falls while its count does
    not is corrupt and adds nothing.
    """

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._raw = np.empty(0)
        self._total = np.empty(0)
        self._count_of = np.empty(0, dtype=np.intp)
        self._places: dict[Layout, np.ndarray] = {}
        self._met = False

    def add(self, scrape: Scrape) -> Values:
        """Take in one page and return the growth of each of its series, in the page's order.

        Args:
            scrape: a page that was read; `layout` and `values` are not None.
        """
        layout, values = scrape.layout, scrape.values
        assert layout is not None
        assert values is not None
        places = self._places.get(layout)
        if places is None:
            places = self._place(layout, values)
        before = self._raw[places]
        step = values - before
        fell = step < 0
        # A sum is judged by its count: it may fall by itself only when it is corrupt.
        count_of = self._count_of[places]
        with_count = count_of >= 0
        if with_count.any():
            now = np.full(len(self._raw), np.nan)
            now[places] = values
            counts = count_of[with_count]
            restarted = now[counts] < self._raw[counts]
            step[with_count] = np.where(fell[with_count] & ~restarted, 0.0, step[with_count])
            fell[with_count] = restarted
        step[fell] = values[fell]
        good = np.isfinite(step)
        self._total[places[good]] += step[good]
        seen = np.isfinite(values)
        self._raw[places[seen]] = values[seen]
        self._met = self._met or scrape.full
        total: Values = self._total[places].copy()
        total[~seen] = np.nan
        return total

    def _place(self, layout: Layout, values: Values) -> np.ndarray:
        new = [(name, value) for name, value in zip(layout.series, values, strict=True) if name not in self._slots]
        for name, _ in new:
            self._slots[name] = len(self._slots)
        # A series that appears on a page known already began at zero; on the first page nobody knows where it began.
        first = [0.0 if self._met else float(value) for _, value in new]
        self._raw = np.concatenate((self._raw, first))
        self._total = np.concatenate((self._total, np.zeros(len(new))))
        self._count_of = np.concatenate(
            (self._count_of, np.array([self._counted_by(name) for name, _ in new], dtype=np.intp))
        )
        if len(self._places) > 8:
            self._places.clear()
        places = np.array([self._slots[name] for name in layout.series], dtype=np.intp)
        self._places[layout] = places
        return places

    def _counted_by(self, series: str) -> int:
        name, brace, labels = series.partition("{")
        if not name.endswith(_SUM):
            return -1
        return self._slots.get(name.removesuffix(_SUM) + _COUNT + brace + labels, -1)
