"""A histogram's sum falls while its count does not: the engine's own figure is wrong."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier, not_known
from pdops.model.cluster import Role
from pdops.model.series import HistogramSeries

META = CheckMeta(
    id="telemetry/corrupt-sum",
    title="A latency sum is corrupt, so its mean is not known",
    causes=("observability",),
    needs=("queue_seconds", "kv_transfer_seconds", "ttft_seconds"),
    tier=Tier.DATA,
    no_alert="rate() cannot tell a corrupt sum from a restart; only pdops sees sum and count together",
)

_FIX = "use the buckets or counts of this histogram; a restart of the engine clears the sum"


def check(ctx: Context) -> Iterator[Finding]:
    """Name the histograms whose mean must not be trusted in this window."""
    for unit in (*ctx.units(Role.PREFILL), *ctx.units(Role.DECODE)):
        for signal in META.needs:
            for series in ctx.view.series.get((unit, signal), ()):
                grown = ctx.ask.totals(series, ctx.view.now) if isinstance(series, HistogramSeries) else None
                if grown is not None and grown.why is not None:
                    yield not_known("observability", signal, grown.why, _FIX, ctx.scope(unit))
