"""How the numbers of a simulated program become the samples of its page."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from prometheus_client.utils import floatToGoString

from pdops.model.frame import Layout, Values
from pdops.sim.families import Family, Page

START = "process_start_time_seconds"
_MOMENTS = frozenset({START, "node_time_seconds", "node_boot_time_seconds"})
"""Gauges that hold Unix seconds."""


@dataclass(slots=True)
class Child:
    """One label set of a family; its numbers lie from `start` to `last` in the raw list.

    `edges` are the family's, `places` are, per sample, the last raw number and the first one of the sum over them, -1 for no sum.
    """

    family: Family
    values: tuple[str, ...]
    start: int
    series: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
    edges: tuple[float, ...]
    last: int


def child_at(family: Family, values: tuple[str, ...], start: int) -> Child:
    """Return a label set whose numbers begin at a place: per bucket, then the sum; or count and sum; or one."""
    places: tuple[tuple[int, int], ...] = ((start, -1),)
    if family.tail:
        last = start + family.size - 2
        buckets = [(start + i, start) for i in range(len(family.edges))]
        places = (*buckets, *((last, start) if part == "count" else (last + 1, -1) for part in family.tail))
    return Child(family, values, start, family.series(values), places, family.edges, start + family.size - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Where the samples of a page come from, until a series comes or goes.

    `heads` are pairs of a comment and how many samples follow it. A sample is running[hi] - running[lo] of the sums over
    buckets where `summed`, else raw[hi]; raw[0] is when the process began. `wanted` are the samples that a reader of
    pages takes, `moments` those that hold Unix seconds.
    """

    heads: tuple[tuple[str, int], ...]
    series: tuple[str, ...]
    hi: np.ndarray
    lo: np.ndarray
    summed: np.ndarray
    buckets: np.ndarray
    wanted: np.ndarray
    moments: tuple[int, ...]
    layout: Layout

    def numbers(self, raw: Sequence[float]) -> Values:
        """Return one number per sample."""
        own = np.array(raw, dtype=np.float64)
        running = np.zeros(len(own) + 1)
        np.cumsum(np.where(self.buckets, own, 0.0), out=running[1:])
        numbers: Values = np.where(self.summed, running[self.hi + 1] - running[self.lo], own[self.hi])
        return numbers

    def text(self, values: Iterable[float], names: Collection[str], *, whole: bool) -> str:
        """Return the exposition text; with `names` of these samples only."""
        write = _whole if whole else floatToGoString
        samples = [f"{series} {write(value)}" for series, value in zip(self.series, values, strict=True)]
        lines: list[str] = []
        at = 0
        for head, count in self.heads:
            group = samples[at : at + count]
            at += count
            if names:
                group = [s for s in group if s.partition(" ")[0].partition("{")[0] in names]
                if not group:
                    continue
            lines += [head, *group]
        return "\n".join(lines) + "\n" if lines else ""


def plan_of(
    page: Page, children: Mapping[str, Mapping[tuple[str, ...], Child]], hidden: Collection[str], size: int
) -> Plan:
    """Return the plan of a page.

    Args:
        page: all families in page order.
        children: the label sets that are there, by the family's key.
        hidden: families that are left out, by name.
        size: how many raw numbers there are.
    """
    heads: list[tuple[str, int]] = []
    series: list[str] = []
    places: list[tuple[int, int]] = []
    wanted: list[bool] = []
    moments: list[int] = []
    buckets = np.zeros(size, dtype=bool)
    for family in page.families:
        own = children.get(family.key)
        if own is None or family.name in hidden:
            continue
        heads.append((_head(family, family.name, family.kind), len(own) * len(family.wanted)))
        if family.name in _MOMENTS:
            moments += range(len(series), len(series) + len(own))
        for child in own.values():
            series += child.series
            places += child.places
            wanted += family.wanted
            if family.tail:
                buckets[child.start : child.start + family.size - 1] = True
        if family.created and own:
            moments += range(len(series), len(series) + len(own))
            series += [family.created_series(child.values) for child in own.values()]
            places += [(0, -1)] * len(own)
            wanted += [False] * len(own)
            heads.append((_head(family, family.created_name, "gauge"), len(own)))
    bounds = np.array(places, dtype=np.intp).reshape(-1, 2)
    return Plan(
        heads=tuple(heads),
        series=tuple(series),
        hi=bounds[:, 0],
        lo=np.maximum(bounds[:, 1], 0),
        summed=bounds[:, 1] >= 0,
        buckets=buckets,
        wanted=np.flatnonzero(wanted),
        moments=tuple(moments),
        layout=_layout(tuple(s for s, w in zip(series, wanted, strict=True) if w)),
    )


def _head(family: Family, name: str, kind: str) -> str:
    said = "" if family.help is None else f"# HELP {name} {family.help}\n"
    return f"{said}# TYPE {name} {kind}"


def _whole(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


@lru_cache(maxsize=1024)
def _layout(series: tuple[str, ...]) -> Layout:
    return Layout(series)
