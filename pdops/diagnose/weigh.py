"""Combine findings into ranked hypotheses: one vote per group of evidence, earlier tiers explain later ones away."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pdops.catalog.load import catalog
from pdops.diagnose.context import Context
from pdops.diagnose.finding import ANYTHING, DECISIVE, CheckMeta, Finding, Status, Weighed
from pdops.model.cluster import Pair
from pdops.model.report import DoNot, Evidence, Hypothesis, Layer, Missing, RuledOut, Scope, Symptom, Verdict

PRIOR = 0.1
"""Probability of a cause before any evidence; one decisive observation then gives 0.92, one moderate 0.40."""
ABSTAIN = 0.5
MARGIN = 0.15
"""Below this confidence, or this close to an alternative in another layer, the answer is unknown: it is better to abstain
than to guess."""
MISSING_CAP = 0.9
"""Most that a hypothesis can reach while evidence it asked for is missing."""
MAX_HYPOTHESES = 5

T = TypeVar("T")
Answer = tuple[CheckMeta, Finding]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cause with everything that was said about it."""

    cause: str
    meta: CheckMeta
    layer: Layer
    confidence: float
    decisive: bool
    verdict: Verdict
    scopes: tuple[Scope, ...]
    for_: tuple[Weighed, ...]
    against: tuple[Weighed, ...]
    missing: tuple[Missing, ...]
    symptoms: tuple[Symptom, ...]
    next: tuple[str, ...]
    runbooks: tuple[str, ...]
    do_not: tuple[DoNot, ...]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Hypotheses by confidence, what they rule out, and whether the first one may be believed."""

    candidates: tuple[Candidate, ...]
    faults: tuple[int, ...]
    ruled_out: tuple[RuledOut, ...]
    decided: bool


def rank(ctx: Context, answers: Sequence[Answer]) -> Ranking:
    """Weigh all answers of all checks."""
    by_cause: dict[str, list[Answer]] = {}
    for answer in answers:
        if answer[1].status is Status.FIRED:
            by_cause.setdefault(answer[1].cause, []).append(answer)
    merged = sorted((_merge(found) for found in by_cause.values()), key=_order)
    kept, explained = _explain_away(ctx, merged)
    ordered = sorted(kept, key=lambda c: (c.verdict is Verdict.UNKNOWN, -c.confidence, c.meta.tier, c.cause))[
        :MAX_HYPOTHESES
    ]
    if _decided(ordered, _number(ctx, ordered)):
        # What to measure next is of use only while there is no answer.
        ordered = [c for c in ordered if c.verdict is not Verdict.UNKNOWN or c.confidence >= ABSTAIN]
    faults = _number(ctx, ordered)
    ruled_out = explained + tuple(
        RuledOut(cause=f.cause, because=f.because, scope=f.scopes[0] if f.scopes else None)
        for _, f in answers
        if f.status is Status.CLEAR and f.cause not in by_cause
    )
    return Ranking(tuple(ordered), faults, _unique(ruled_out), _decided(ordered, faults))


def confidence(for_: Iterable[Weighed], against: Iterable[Weighed]) -> float:
    """Return the posterior probability from likelihood ratios, the greatest of each group, starting from `PRIOR`."""
    log_odds = math.log(PRIOR / (1 - PRIOR))
    for sign, evidence in ((1.0, for_), (-1.0, against)):
        best: dict[str, float] = {}
        for item in evidence:
            best[item.group] = max(best.get(item.group, 1.0), item.ratio)
        log_odds += sign * sum(math.log(best[group]) for group in sorted(best))
    return 1.0 / (1.0 + math.exp(-log_odds))


def hypothesis(ctx: Context, candidate: Candidate, fault: int) -> Hypothesis:
    """Return a candidate as it is published, with guilty workers named beside their pool where single series tell."""
    return Hypothesis(
        fault=fault,
        cause=candidate.cause,
        check=candidate.meta.id,
        layer=candidate.layer,
        confidence=round(candidate.confidence, 3),
        scopes=_unique((*candidate.scopes, *_guilty(ctx, candidate))),
        for_=_evidence(candidate.for_),
        against=_evidence(candidate.against),
        missing=candidate.missing,
        next=candidate.next,
        runbooks=candidate.runbooks,
        do_not=candidate.do_not,
    )


def _guilty(ctx: Context, candidate: Candidate) -> tuple[Scope, ...]:
    """Return workers of an accused pool whose own counter of the same evidence moved, when others' did not."""
    found: list[Scope] = []
    for scope in candidate.scopes:
        if scope.kind != "pool":
            continue
        workers = ctx.cluster.of_pool(scope.id)
        for signal in {w.evidence.signal for w in candidate.for_ if w.evidence.scope == scope}:
            moved = [w.id for w in workers if ctx.ask.increase(w.id, signal).above(0)]
            if 0 < len(moved) < len(workers):
                found.extend(Scope("worker", worker) for worker in moved)
    return tuple(sorted(set(found)))


def _evidence(items: tuple[Weighed, ...]) -> tuple[Evidence, ...]:
    return tuple(w.evidence for w in sorted(items, key=lambda w: (-w.ratio, w.evidence.signal, str(w.evidence.scope))))


def _merge(found: list[Answer]) -> Candidate:
    scored = sorted(found, key=lambda a: (-confidence(a[1].for_, a[1].against), a[0].tier, a[0].id))
    meta, best = scored[0]
    for_ = _flat(f.for_ for _, f in scored)
    against = _flat(f.against for _, f in scored)
    missing = _flat(f.missing for _, f in scored)
    cap = max(f.cap for _, f in scored)
    value = min(confidence(for_, against), cap, MISSING_CAP if missing else 1.0)
    return Candidate(
        cause=best.cause,
        meta=meta,
        layer=best.layer or catalog().causes[best.cause].layer,
        confidence=value,
        decisive=any(w.ratio >= DECISIVE for w in for_),
        verdict=best.verdict,
        scopes=_flat(f.scopes for _, f in scored),
        for_=for_,
        against=against,
        missing=missing,
        symptoms=_flat(f.symptoms for _, f in scored),
        next=_flat(f.next for _, f in scored),
        runbooks=_flat(f.runbooks for _, f in scored),
        do_not=_flat(f.do_not for _, f in scored),
    )


def _order(candidate: Candidate) -> tuple[int, float, str]:
    return (candidate.meta.tier, -candidate.confidence, candidate.cause)


def _explain_away(ctx: Context, ordered: list[Candidate]) -> tuple[list[Candidate], tuple[RuledOut, ...]]:
    """Drop what follows from something better founded that was judged before it."""
    kept: list[Candidate] = []
    dropped: list[RuledOut] = []
    believed = [c for c in ordered if c.confidence >= ABSTAIN]
    for candidate in ordered:
        origin = next((b for b in believed if b is not candidate and _explains(ctx, b, candidate)), None)
        if origin is None:
            kept.append(candidate)
        else:
            because = f"follows from {origin.cause} ({', '.join(str(s) for s in origin.scopes) or 'whole cluster'})"
            scope = candidate.scopes[0] if candidate.scopes else None
            dropped.append(RuledOut(cause=candidate.cause, because=because, scope=scope))
    return kept, tuple(dropped)


def _explains(ctx: Context, origin: Candidate, effect: Candidate) -> bool:
    if effect.cause in origin.meta.explains:
        listed = True
    else:
        listed = ANYTHING in origin.meta.explains and effect.meta.tier > origin.meta.tier
    mutual = origin.cause in effect.meta.explains and _order(effect) < _order(origin)
    return listed and not mutual and _related(ctx, origin.scopes, effect.scopes)


def _related(ctx: Context, a: tuple[Scope, ...], b: tuple[Scope, ...]) -> bool:
    """Whether two faults can be one: only workers of the same role that are disjoint are surely apart."""
    first, second = _workers(ctx, a), _workers(ctx, b)
    if not first or not second or first & second:
        return True
    roles = [{w.role for x in group if (w := ctx.cluster.get(x))} for group in (first, second)]
    return roles[0] != roles[1]


def _workers(ctx: Context, scopes: tuple[Scope, ...]) -> frozenset[str]:
    found: set[str] = set()
    for scope in scopes:
        if scope.kind == "worker":
            found.add(scope.id)
        elif scope.kind == "pair":
            pair = Pair.parse(scope.id)
            found |= {pair.src, pair.dst}
        elif scope.kind == "pool":
            found |= {w.id for w in ctx.cluster.of_pool(scope.id)}
    return frozenset(found)


def _number(ctx: Context, ordered: Sequence[Candidate]) -> tuple[int, ...]:
    """Give alternatives the number of the fault they compete for, and independent faults a new one."""
    numbers: list[int] = []
    leaders: list[Candidate] = []
    for candidate in ordered:
        apart = candidate.decisive and candidate.confidence >= ABSTAIN
        for number, leader in enumerate(leaders, start=1):
            if not (apart and leader.decisive) and _related(ctx, leader.scopes, candidate.scopes):
                numbers.append(number)
                break
        else:
            leaders.append(candidate)
            numbers.append(len(leaders))
    return tuple(numbers)


def _decided(ordered: Sequence[Candidate], faults: tuple[int, ...]) -> bool:
    if not ordered or ordered[0].confidence < ABSTAIN or ordered[0].verdict is Verdict.UNKNOWN:
        return False
    rivals = [
        c
        for c, fault in zip(ordered[1:], faults[1:], strict=True)
        if fault == faults[0] and c.layer is not ordered[0].layer and c.verdict is not Verdict.UNKNOWN
    ]
    return all(ordered[0].confidence - rival.confidence >= MARGIN for rival in rivals)


def _flat(groups: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return _unique(item for group in groups for item in group)


def _unique(items: Iterable[T]) -> tuple[T, ...]:
    out: list[T] = []
    for item in items:
        if item not in out:
            out.append(item)
    return tuple(out)
