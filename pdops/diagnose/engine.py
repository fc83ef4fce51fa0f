"""Run the checks in order of thought and put the answer together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pdops.diagnose import hops, ttft
from pdops.diagnose.candidate import ABSTAIN
from pdops.diagnose.checks import CHECKS
from pdops.diagnose.context import Context
from pdops.diagnose.corroborate import corroborate
from pdops.diagnose.finding import Check, Status
from pdops.diagnose.ground import HISTORY_S, YOUNG_CAP, grounded
from pdops.diagnose.sources import unread
from pdops.diagnose.symptoms import Picture, picture
from pdops.diagnose.vitals import missing_vitals
from pdops.diagnose.weigh import Answer, Ranking, hypothesis, rank
from pdops.model.report import Missing, Report, Scope, Symptom, Verdict
from pdops.model.times import rfc3339
from pdops.model.view import PAGE, RECORDING, TIMESTAMPS, Note, View
from pdops.stats.robust import MIN_PEERS

_MEASURED = frozenset({Symptom.TTFT, Symptom.ITL})
"""Symptoms that are only ever seen in the latencies themselves, never inferred from a cause."""
_IDLE = Missing(
    signal="traffic",
    why="no request finished in the window, so latency and errors were not judged",
    fix="send one request through the router, or watch for longer",
)
_YOUNG = Missing(
    signal="comparison",
    why=f"with neither {HISTORY_S / 60:.0f} min of history nor {MIN_PEERS} peers nothing says what is usual, so only physics, "
    f"configuration, logs and probes count, and confidence stays at or below {YOUNG_CAP:g}",
    fix="watch for longer",
)

_MAY_BE = {
    "ttft_seconds": ("in so few requests that it may be chance", "watch for longer: --for 60, or a longer window"),
    "itl_seconds": (
        "in so few token gaps that it may be chance, or in a bucket that holds the promise itself",
        "watch for longer, or promise a bucket's edge",
    ),
}
_LATENCIES = {"ttft_seconds": "TTFT", "itl_seconds": "ITL"}


@dataclass(frozen=True, slots=True)
class Assessment:
    """A report, and the weight (0-1) of the evidence for its first hypothesis before too little history limits it."""

    report: Report
    weight: float


def diagnose(view: View, checks: Sequence[Check] = CHECKS) -> Report:
    """Judge a View."""
    return assess(view, checks).report


def assess(view: View, checks: Sequence[Check] = CHECKS) -> Assessment:
    """Judge a View, and say how heavy the evidence is."""
    ctx = Context(view)
    seen = picture(ctx)
    answers = corroborate(ctx, [(check.meta, finding) for check in checks for finding in check.run(ctx)])
    ranking = rank(ctx, answers)
    missing = _missing(ctx, answers)
    stages = ttft.split(ctx)
    verdict = _verdict(ctx, seen, ranking)
    missing += _unsure(ctx, seen)
    if verdict is Verdict.HEALTHY and not (seen.ttft.known or seen.itl.known or seen.errors.known):
        missing += (_IDLE,)
    candidates = () if verdict is Verdict.HEALTHY else ranking.candidates
    if candidates and not grounded(ctx):
        missing += (_YOUNG,)
    hypotheses = tuple(hypothesis(ctx, c, n) for c, n in zip(candidates, ranking.faults, strict=False))
    report = Report(
        cluster=view.cluster.name,
        at=None if view.relative else rfc3339(view.at_s),
        at_s=view.at_s,
        verdict=verdict,
        symptoms=_symptoms(seen, ranking, verdict),
        ttft=stages,
        hops=hops.trail(ctx, seen, stages, ranking, verdict),
        hypotheses=hypotheses,
        ruled_out=ranking.ruled_out,
        missing=missing,
    )
    return Assessment(report, candidates[0].weight if candidates else 0.0)


def _verdict(ctx: Context, seen: Picture, ranking: Ranking) -> Verdict:
    if ctx.nothing_answers:
        return Verdict.UNKNOWN
    if ranking.decided:
        return ranking.candidates[0].verdict
    if any(c.confidence >= ABSTAIN for c in ranking.candidates):
        return Verdict.UNKNOWN
    unexplained = set(seen.symptoms) - {Symptom.SKEW, Symptom.STARTUP}
    if unexplained or missing_vitals(ctx) or _unsure(ctx, seen):
        return Verdict.UNKNOWN
    # What a page gave a while ago says nothing of the window that is judged.
    if any(note.code == TIMESTAMPS for note in ctx.view.notes):
        return Verdict.UNKNOWN
    if ctx.view.at_s - ctx.view.start_s < ctx.view.now.span_s:
        return Verdict.UNKNOWN
    return Verdict.HEALTHY


def _unsure(ctx: Context, seen: Picture) -> tuple[Missing, ...]:
    """Return the latencies whose promise is neither broken for sure nor kept: over it in too few events, or seen as a bound."""
    found = []
    for signal, now, high, promised in (
        ("ttft_seconds", seen.ttft, seen.ttft_high, ctx.slo.ttft_s),
        ("itl_seconds", seen.itl, seen.itl_high, ctx.slo.itl_s),
    ):
        name = _LATENCIES[signal]
        if promised is None or high or now.value is None:
            continue
        if now.above(promised) and not (signal == "itl_seconds" and ctx.decode_keeps(promised)):
            why, fix = _MAY_BE[signal]
            found.append(Missing(signal=signal, why=f"{name} may be over its promise, but {why}", fix=fix))
        elif now.bound == "ge" and not now.above(promised):
            why = (
                f"{name} is only known to be at least {now.value:.3g} s, which is within its promise of {promised:g} s"
            )
            found.append(Missing(signal=signal, why=why, fix="give the histogram buckets beyond the promise"))
    return tuple(found)


def _symptoms(seen: Picture, ranking: Ranking, verdict: Verdict) -> tuple[Symptom, ...]:
    found = list(seen.symptoms)
    if verdict is not Verdict.HEALTHY:
        for candidate in ranking.candidates:
            if candidate.confidence >= ABSTAIN:
                found.extend(s for s in candidate.symptoms if s not in found and s not in _MEASURED)
    return tuple(s for s in Symptom if s in found)


def _missing(ctx: Context, answers: Sequence[Answer]) -> tuple[Missing, ...]:
    found = list(missing_vitals(ctx))
    if ctx.view.at_s - ctx.view.start_s < ctx.view.now.span_s:
        have = ctx.view.at_s - ctx.view.start_s
        found.append(
            Missing(
                signal="history",
                why=f"only {have:.0f} s of data, the judged window is {ctx.view.now.span_s:.0f} s",
                fix="wait until the window is full",
            )
        )
    found += lost(ctx.view.notes)
    for _, finding in answers:
        if finding.status is not Status.CLEAR:
            found.extend(m for m in finding.missing if m not in found)
    return (*found, *unread(ctx))


def lost(notes: Iterable[Note]) -> tuple[Missing, ...]:
    """Return what notes on the data say is lost or old, as missing data."""
    signals = {PAGE: "metrics page", TIMESTAMPS: "fresh samples", RECORDING: "recording"}
    return tuple(
        Missing(
            signal=signals[note.code],
            why=note.why,
            fix=note.fix,
            scope=None if note.code == RECORDING else Scope("worker", note.worker),
        )
        for note in notes
        if note.code in signals
    )
