"""Rank metrics by how far they moved: n-sigma, and median with interquartile range as BARO's scorer has it."""

from __future__ import annotations

from collections.abc import Callable

from pdops.bench.baselines.detect import onset
from pdops.bench.baselines.scoring import Moves, explain, gaussian, robust
from pdops.bench.outcome import SILENT, Said
from pdops.bench.table import Table
from pdops.model.cluster import Cluster

Score = Callable[[Table, float, float], Moves]


def with_onset(table: Table, cluster: Cluster, score: Score, onset_s: float) -> Said:
    """Return the answer of a scorer that is told when the fault began (Unix seconds)."""
    return explain(score(table, onset_s, float(table.t[-1])), cluster)


def alone(table: Table, cluster: Cluster, score: Score) -> Said:
    """Return the answer of a scorer that first has to notice; silent when it does not."""
    began = onset(table)
    return SILENT if began is None else explain(score(table, began - 1e-6, float(table.t[-1])), cluster)


def n_sigma(table: Table, onset_s: float, until_s: float) -> Moves:
    """Score by standard deviations from the mean."""
    return gaussian(table, onset_s, until_s)


def baro(table: Table, onset_s: float, until_s: float) -> Moves:
    """Score by interquartile ranges from the median (RobustScorer of Pham et al., FSE 2024)."""
    return robust(table, onset_s, until_s)
