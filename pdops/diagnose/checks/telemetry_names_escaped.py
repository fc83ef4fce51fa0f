"""Metric names arrive with the colon written as an underscore."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier, not_known

META = CheckMeta(
    id="telemetry/names-escaped",
    title="Metric names arrive escaped, so dashboards that use the colon are empty",
    causes=("telemetry-gap",),
    needs=(),
    tier=Tier.DATA,
    alert="PDMetricNamesEscaped",
    panel="overview/data-age",
)


def check(ctx: Context) -> Iterator[Finding]:
    """Say so once per worker; pdops itself reads both spellings."""
    for note in ctx.view.notes:
        if note.code == "names-escaped":
            yield not_known("telemetry-gap", "metric names", note.why, note.fix, ctx.scope(note.worker))
