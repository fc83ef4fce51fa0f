"""The newest values of each worker's own signals."""

from __future__ import annotations

import math
from functools import partial

from pdops.catalog.load import catalog
from pdops.model.cluster import Worker
from pdops.model.series import Kind
from pdops_exporters.watched import Page, Snapshot


def newest(snapshot: Snapshot) -> list[tuple[Worker, dict[str, float]]]:
    """Return, for each worker, gauges as they are and counters as they grew since this process first saw them.

    What a worker does not give, or gives as NaN, is absent. Histograms are left out.
    """
    return snapshot.once(__name__, lambda: _newest(snapshot))


def _newest(snapshot: Snapshot) -> list[tuple[Worker, dict[str, float]]]:
    found: dict[str, tuple[Worker, dict[str, float]]] = {}
    for page in snapshot.pages:
        _, mine = found.setdefault(page.worker.id, (page.worker, {}))
        for place, signal, counter in page.derive(__name__, partial(_places, page)):
            value = float((page.grown if counter else page.now)[place])
            if math.isfinite(value):
                mine.setdefault(signal, value)
    return list(found.values())


def _places(page: Page) -> list[tuple[int, str, bool]]:
    signals = catalog().signals
    return [
        (place, column.signal, signals[column.signal].kind is Kind.COUNTER)
        for place, column in enumerate(page.columns)
        if not (column.scope or column.part or column.rate) and column.signal in signals
    ]
