"""Frames for tests of the history."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from pdops.catalog.binding import CANONICAL
from pdops.model.cluster import Cluster, Role, Worker
from pdops.model.frame import Frame, Layout, Scrape

CLUSTER = Cluster(
    name="test",
    workers=(
        Worker(id="prefill-0", role=Role.PREFILL, pool="prefill", url="http://p0"),
        Worker(id="decode-0", role=Role.DECODE, pool="decode", url="http://d0"),
        Worker(id="decode-1", role=Role.DECODE, pool="decode", url="http://d1"),
    ),
)
_LAYOUTS: dict[tuple[str, ...], Layout] = {}


def scrape(
    worker: str, at_s: float, values: Mapping[str, float], *, engine: str = CANONICAL, endpoint: str = ""
) -> Scrape:
    """Return one page; names are series, and equal names share their layout as the parser makes them."""
    names = tuple(values)
    layout = _LAYOUTS.setdefault(names, Layout(names))
    return Scrape(
        worker=worker,
        engine=engine,
        at_s=at_s,
        layout=layout,
        values=np.array([float(v) for v in values.values()]),
        endpoint=endpoint,
    )


def silent(worker: str, at_s: float, error: str = "connection refused") -> Scrape:
    """Return a page that could not be read."""
    return Scrape(worker=worker, engine=CANONICAL, at_s=at_s, error=error)


def frame(at_s: float, *scrapes: Scrape) -> Frame:
    """Return one tick."""
    return Frame(at_s=at_s, scrapes=scrapes)


def page(worker: str, at_s: float, **values: float) -> Frame:
    """Return a tick in which one worker gave these canonical signals."""
    return frame(at_s, scrape(worker, at_s, values))


def buckets(signal: str, edges: Mapping[float, float], total_sum: float) -> dict[str, float]:
    """Return the series of a histogram, with cumulative counts by edge; the last edge is +Inf."""
    rows = {f'{signal}_bucket{{le="{"+Inf" if math.isinf(e) else e}"}}': n for e, n in edges.items()}
    return rows | {f"{signal}_sum": total_sum, f"{signal}_count": max(edges.values())}
