"""What a dashboard is made of, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["lines", "stack", "stat", "table", "heat", "states", "bars"]
"""How a panel draws: lines over time, stacked areas, one number, a table, a heat map, states over time, one bar a series."""
Step = tuple[float, Literal["green", "yellow", "orange", "red", "blue"]]

ALL = 'cluster=~"$cluster",model=~"$model"'
"""Matchers of what belongs to a whole cluster."""
RATE = "[$__rate_interval]"


def workers(role: str, *more: str) -> str:
    """Return matchers of workers of a role, narrowed by the dashboard's variables."""
    return ",".join((ALL, f'role="{role}"', 'pool=~"$pool"', 'worker=~"$worker"', *more))


PREFILL = workers("prefill")
DECODE = workers("decode")


@dataclass(frozen=True, slots=True)
class Query:
    """One query; `legend` uses `{{label}}`. An instant one asks for now only, as tables do."""

    expr: str
    legend: str = ""
    instant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel.

    Args:
        id: `subject/what`; checks and alerts name panels by it.
        title: what is shown.
        bad: what to do when it looks bad.
        unit: Grafana's name of the unit.
        queries: what is asked.
        kind: how it is drawn.
        steps: (from this value, colour), ascending; a line says the same in words in `bad`.
        seen_in: name of the recording in which the panel must show finite data.
        needs: why no recording has data for it, when none has.
        width: columns of 24.
        height: rows.
    """

    id: str
    title: str
    bad: str
    unit: str
    queries: tuple[Query, ...]
    kind: Kind = "lines"
    steps: tuple[Step, ...] = ()
    seen_in: str = "healthy-load"
    needs: str | None = None
    width: int = 8
    height: int = 8
    max: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels that belong together."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard; its uid is `pdops-NAME`."""

    name: str
    title: str
    description: str
    rows: tuple[Row, ...]

    @property
    def uid(self) -> str:
        """Stable, so that links and pushes find it again."""
        return f"pdops-{self.name}"

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels in order; a panel's number in Grafana is its place, from 1."""
        return tuple(panel for row in self.rows for panel in row.panels)
