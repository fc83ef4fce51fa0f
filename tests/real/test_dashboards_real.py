"""Every panel's query on Debian's Prometheus 2.42, over what the exporter says of recordings of the real pair."""

from __future__ import annotations

import math

import pytest

from pdops.grafana.dashboards.build import DASHBOARDS
from pdops.grafana.dashboards.panel import Panel
from tests.real.played import answer
from tests.real.stored import Stored

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]
PANELS = [panel for dashboard in DASHBOARDS for panel in dashboard.panels]


def finite(there: Stored, expr: str, span: tuple[float, float]) -> int:
    """Return how many finite values an expression has over a span."""
    found = answer(there.url, expr, span)
    return sum(math.isfinite(float(v)) for series in found for _, v in series["values"])


@pytest.mark.parametrize("panel", [p for p in PANELS if p.needs is None], ids=lambda p: p.id)
def test_every_query_returns_finite_data_where_it_is_needed(panel: Panel, stored: Stored) -> None:
    for query in panel.queries:
        assert finite(stored, query.expr, stored.spans[panel.seen_in]) > 0, query.expr


@pytest.mark.parametrize("panel", [p for p in PANELS if p.needs is not None], ids=lambda p: p.id)
def test_what_no_recording_shows_is_at_least_answered(panel: Panel, stored: Stored) -> None:
    span = next(iter(stored.spans.values()))
    for query in panel.queries:
        finite(stored, query.expr, span)


def test_most_panels_are_shown_by_recordings() -> None:
    shown = sum(panel.needs is None for panel in PANELS)
    assert shown >= 50
