"""A line in a log names a cause that no metric can name."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.catalog.log_lines import log_lines
from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Status, Tier
from pdops.diagnose.loglines import Match, evidence, matches
from pdops.model.report import Symptom

META = CheckMeta(
    id="telemetry/log-line",
    title="A log line names a cause",
    causes=tuple(sorted({cause for spec in log_lines() for cause in spec.causes})),
    needs=(),
    tier=Tier.PAIR,
    no_alert="log lines are read by pdops only; no metric carries their text",
)

_MOST = 6
"""Pieces of evidence listed for one cause: a pool that logs the same line at every worker fills the page otherwise."""
_CAP = 0.95
"""A line is what somebody wrote about an error, not the error itself."""


def check(ctx: Context) -> Iterator[Finding]:
    """Join the window's lines with the catalog's table, one finding a cause."""
    by_cause: dict[str, list[Match]] = {}
    for match in matches(ctx):
        by_cause.setdefault(match.cause, []).append(match)
    for cause in sorted(by_cause):
        yield _finding(ctx, cause, by_cause[cause])


def _finding(ctx: Context, cause: str, found: list[Match]) -> Finding:
    specs = list(dict.fromkeys(m.spec for m in found))
    workers = sorted({m.worker for m in found})
    own = [spec for spec in specs if spec.cause == cause]
    return Finding(
        status=Status.FIRED,
        cause=cause,
        scopes=tuple(ctx.scope(worker) for worker in workers),
        layer=own[0].layer if own else None,
        for_=tuple(evidence(ctx, m) for m in found[:_MOST]),
        symptoms=(Symptom.WRONG_ANSWERS,) if cause == "silent-corruption" else (),
        next=tuple(f"{spec.first_check} ({spec.component}: {spec.meaning})" for spec in specs[:3]),
        runbooks=tuple(dict.fromkeys(book for spec in own for book in spec.runbooks)),
        cap=_CAP,
    )
