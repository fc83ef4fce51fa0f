"""Every panel's query on Debian's Prometheus 2.42, over what the exporter says of recordings of the real pair.

The exporter's pages of each recording are written into blocks by promtool, with the recording's own times, so nothing has
to be waited for. Prometheus listens on a port of loopback that the system chose, and is stopped again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from pdops.grafana.dashboards.build import DASHBOARDS
from pdops.grafana.dashboards.panel import Panel
from tests.real.played import Played, answer, installed, played

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
PANELS = [panel for dashboard in DASHBOARDS for panel in dashboard.panels]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    if not installed():
        pytest.skip("Debian's prometheus is not installed")
    names = sorted({panel.seen_in for panel in PANELS if panel.needs is None})
    with played(names, tmp_path_factory.mktemp("prometheus")) as found:
        yield found


def finite(there: Played, expr: str, span: tuple[float, float]) -> int:
    """Return how many finite values an expression has over a span."""
    found = answer(there.url, expr, span)
    return sum(math.isfinite(float(v)) for series in found for _, v in series["values"])


@pytest.mark.parametrize("panel", [p for p in PANELS if p.needs is None], ids=lambda p: p.id)
def test_every_query_returns_finite_data_where_it_is_needed(panel: Panel, prometheus: Played) -> None:
    for query in panel.queries:
        assert finite(prometheus, query.expr, prometheus.spans[panel.seen_in]) > 0, query.expr


@pytest.mark.parametrize("panel", [p for p in PANELS if p.needs is not None], ids=lambda p: p.id)
def test_what_no_recording_shows_is_at_least_answered(panel: Panel, prometheus: Played) -> None:
    span = next(iter(prometheus.spans.values()))
    for query in panel.queries:
        finite(prometheus, query.expr, span)


def test_most_panels_are_shown_by_recordings() -> None:
    shown = sum(panel.needs is None for panel in PANELS)
    assert shown >= 50
