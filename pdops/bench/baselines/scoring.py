"""How far metrics went from what they were, and which cause and place that speaks for."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from pdops.bench.outcome import Said
from pdops.bench.table import Table
from pdops.catalog.load import catalog
from pdops.errors import CatalogError
from pdops.model.cluster import PAIR_PREFIX, Cluster
from pdops.model.report import Scope
from pdops.model.series import Floats
from pdops.sources.validate import Strict, Text, build
from pdops.sources.yamlfile import parse_yaml

FLOOR_RATIO = 0.05
"""Least spread that counts, as a share of the level before: a metric that never moved must not make every change
infinite. The published methods divide by 1 then, which depends on the unit."""
FLOOR = 1e-3
MANY = 0.5
"""When this share of a pool's workers moved at least half as far as the worst, the pool is named."""


class Meaning(Strict):
    """Which cause a metric of a kind of entity speaks for when it goes up, or down."""

    group: Text
    metric: Text
    up: Text | None = None
    down: Text | None = None


class _Meanings(Strict):
    schema_: Literal["pdops/bench-metric-causes/v1"] = Field(alias="schema")
    metrics: Annotated[tuple[Meaning, ...], Field(min_length=1)]


@lru_cache(maxsize=1)
def meanings() -> dict[tuple[str, str], Meaning]:
    """Return the map from metric to cause that methods use which rank metrics only.

    Raises:
        CatalogError: the shipped file is not valid or names an unknown cause.
    """
    name = "metric_causes.yaml"
    text = resources.files("pdops.bench").joinpath("data", name).read_text(encoding="utf-8")
    what = "benchmark file cannot be used"
    found = build(_Meanings, parse_yaml(text, path=name, error=CatalogError, what=what), error=CatalogError, what=what)
    for entry in found.metrics:
        for cause in (entry.up, entry.down):
            if cause is not None and cause not in catalog().causes:
                raise CatalogError(what, where=name, why=f"unknown cause {cause!r}", hint="see causes.yaml")
    return {(m.group, m.metric): m for m in found.metrics}


@dataclass(frozen=True, slots=True)
class Moves:
    """Signed distance of every row of a table, NaN where it cannot be told."""

    table: Table
    score: Floats


def robust(table: Table, onset_s: float, until_s: float) -> Moves:
    """Return the farthest distance after the onset, in interquartile ranges from the median before it."""
    before, after = table.between(-np.inf, onset_s), table.between(onset_s, until_s)
    with np.errstate(invalid="ignore"), _quiet():
        low, centre, high = np.nanpercentile(before, (25, 50, 75), axis=1) if before.shape[1] else _none(table)
        spread = high - low
    return Moves(table, _farthest(after, centre, spread))


def gaussian(table: Table, onset_s: float, until_s: float) -> Moves:
    """Return the farthest distance after the onset, in standard deviations from the mean before it."""
    before, after = table.between(-np.inf, onset_s), table.between(onset_s, until_s)
    with np.errstate(invalid="ignore"), _quiet():
        centre, spread = np.nanmean(before, axis=1), np.nanstd(before, axis=1)
    return Moves(table, _farthest(after, centre, spread))


def explain(moves: Moves, cluster: Cluster, least: float = 3.0) -> Said:
    """Rank causes by the metric that went farthest in a direction that speaks for them, and name its place."""
    best: dict[str, tuple[float, int]] = {}
    for number, row in enumerate(moves.table.rows):
        meaning = meanings().get((row.group, row.metric))
        score = moves.score[number]
        if meaning is None or np.isnan(score):
            continue
        cause = meaning.up if score > 0 else meaning.down
        if cause is not None and abs(score) >= least and abs(score) > best.get(cause, (0.0, 0))[0]:
            best[cause] = (abs(float(score)), number)
    ranked = sorted(best, key=lambda c: (-best[c][0], c))[:5]
    if not ranked:
        return Said(alarm=False)
    total = sum(best[c][0] for c in ranked)
    return Said(
        alarm=True,
        verdict="fault",
        causes=tuple(ranked),
        confidences=tuple(best[c][0] / total for c in ranked),
        faults=tuple(1 for _ in ranked),
        layer=catalog().causes[ranked[0]].layer.value,
        scopes=tuple((where(moves, best[c][1], cluster),) for c in ranked),
    )


def where(moves: Moves, number: int, cluster: Cluster) -> Scope:
    """Return the place of a row: its worker or pair, or the pool when many of its workers moved alike."""
    row = moves.table.rows[number]
    if row.entity.startswith(PAIR_PREFIX):
        return Scope("pair", row.entity.removeprefix(PAIR_PREFIX))
    worker = cluster.get(row.entity)
    if worker is None:
        return Scope("global", row.entity)
    alike = moves.table.places[row.group, row.metric]
    scores = np.abs(moves.score[list(alike)])
    moved = np.nansum(scores >= abs(moves.score[number]) / 2)
    many = moved > 1 and moved >= MANY * len(cluster.of_pool(worker.pool))
    return Scope("pool", worker.pool) if many else Scope("worker", worker.id)


def farthest_place(moves: Moves, causes: Iterable[str], cluster: Cluster) -> tuple[Scope, ...]:
    """Return where the metrics that speak for a cause moved most, or the whole cluster when none of them did."""
    wanted = set(causes)
    rows = [
        (abs(float(moves.score[n])), n)
        for n, row in enumerate(moves.table.rows)
        if (m := meanings().get((row.group, row.metric))) is not None
        and not np.isnan(moves.score[n])
        and (m.up if moves.score[n] > 0 else m.down) in wanted
    ]
    return (where(moves, max(rows)[1], cluster),) if rows else (Scope("global", "all"),)


def first_excess(line: Floats, t: Floats, since_s: float, limit: float, count: int) -> float | None:
    """Return when a line of scores has been beyond a limit for `count` ticks in a row after `since_s`."""
    run = 0
    for at_s, score in zip(t.tolist(), line.tolist(), strict=True):
        run = run + 1 if at_s > since_s and abs(score) > limit else 0
        if run >= count:
            return float(at_s)
    return None


def rows_of(table: Table, keys: Sequence[tuple[str, str]]) -> list[int]:
    """Return the row numbers of these (group, metric) keys."""
    return [n for key in keys for n in table.places.get(key, ())]


def _farthest(after: Floats, centre: Floats, spread: Floats) -> Floats:
    if after.shape[1] == 0:
        return np.full(len(centre), np.nan)
    least = np.maximum(np.abs(centre) * FLOOR_RATIO, FLOOR)
    scaled = (after - centre[:, None]) / np.maximum(spread, least)[:, None]
    with _quiet():
        high, low = np.nanmax(scaled, axis=1), np.nanmin(scaled, axis=1)
    result: Floats = np.where(np.abs(high) >= np.abs(low), high, low)
    return result


def _none(table: Table) -> Floats:
    return np.full((3, len(table.rows)), np.nan)


def _quiet() -> warnings.catch_warnings[None]:
    """Keep numpy from saying that a row of unknowns has no mean; the row stays unknown."""
    return warnings.catch_warnings(action="ignore", category=RuntimeWarning)
