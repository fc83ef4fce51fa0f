"""Take metrics away, as a cluster that exports less would: whole families of whole roles, the same in every frame."""

from __future__ import annotations

import dataclasses
from random import Random

import numpy as np

from pdops.catalog.names import HISTOGRAM_SUFFIXES, canonical_name
from pdops.model.cluster import Cluster
from pdops.model.frame import Frame, Layout, Scrape


class Thinner:
    """Drops a share of (role, family) combinations, drawn when they are first met, by a seed.

    Args:
        cluster: who has which role.
        ratio: share of families to drop, 0-1.
        seed: what the draw depends on, besides the names.
    """

    def __init__(self, cluster: Cluster, ratio: float, seed: str) -> None:
        self._roles = {w.id: w.role.value for w in cluster.workers}
        self._ratio = ratio
        self._seed = seed
        self._kept: dict[tuple[str, Layout], tuple[Layout, np.ndarray]] = {}

    def __call__(self, frame: Frame) -> Frame:
        """Return the frame without what was drawn to be missing."""
        if self._ratio <= 0:
            return frame
        return dataclasses.replace(frame, scrapes=tuple(self._thinned(s) for s in frame.scrapes))

    def _thinned(self, scrape: Scrape) -> Scrape:
        if scrape.layout is None or scrape.values is None:
            return scrape
        role = self._roles.get(scrape.worker, "")
        key = (role, scrape.layout)
        if key not in self._kept:
            keep = np.array([not self._dropped(role, series) for series in scrape.layout.series], dtype=bool)
            series = tuple(s for s, kept in zip(scrape.layout.series, keep, strict=True) if kept)
            self._kept[key] = (Layout(series), keep)
        layout, keep = self._kept[key]
        return dataclasses.replace(scrape, layout=layout, values=scrape.values[keep])

    def _dropped(self, role: str, series: str) -> bool:
        name, _ = canonical_name(series.partition("{")[0].strip())
        for suffix in HISTOGRAM_SUFFIXES:
            name = name.removesuffix(suffix)
        return Random(f"{self._seed}/{role}/{name}").random() < self._ratio  # noqa: S311  a draw, not a secret
