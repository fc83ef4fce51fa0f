"""The newest values of each worker's own signals."""

from __future__ import annotations

import numpy as np

from pdops.catalog.load import catalog
from pdops.model.cluster import Worker
from pdops.model.series import Kind
from pdops_exporters.watched import Snapshot


def newest(snapshot: Snapshot) -> list[tuple[Worker, dict[str, float]]]:
    """Return, for each worker, gauges as they are and counters as they grew since this process first saw them.

    What a worker does not give, or gives as NaN, is absent. Histograms are left out.
    """
    found: dict[str, dict[str, float]] = {}
    workers: dict[str, Worker] = {}
    signals = catalog().signals
    for page in snapshot.pages:
        workers[page.worker.id] = page.worker
        mine = found.setdefault(page.worker.id, {})
        for column, now, grown in zip(page.columns, page.now, page.grown, strict=True):
            if column.scope or column.part or column.rate or column.signal not in signals:
                continue
            value = grown if signals[column.signal].kind is Kind.COUNTER else now
            if np.isfinite(value):
                mine.setdefault(column.signal, float(value))
    return [(workers[name], values) for name, values in found.items()]
