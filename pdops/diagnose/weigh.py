"""Combine findings into ranked hypotheses: one vote per group of evidence, earlier tiers explain later ones away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pdops.catalog.load import catalog
from pdops.diagnose.calibration import calibration
from pdops.diagnose.candidate import ABSTAIN, Candidate, confidence, leak
from pdops.diagnose.context import Context
from pdops.diagnose.counterfactual import HALF, Account, Suspect
from pdops.diagnose.faults import explain_away, number, order
from pdops.diagnose.finding import DECISIVE, STRONG, WEAK, CheckMeta, Finding, Status, Weighed
from pdops.diagnose.ground import COMPARED, ceiling, counting
from pdops.diagnose.load import LENGTH, MOVED
from pdops.diagnose.mechanism import MECHANISMS
from pdops.diagnose.place import place
from pdops.diagnose.promise import kept, momentary, unfelt, untouched
from pdops.diagnose.symptoms import picture
from pdops.model.report import Evidence, Hypothesis, RuledOut, Scope, Symptom, Verdict

MARGIN = 0.15
"""This close to an alternative in another layer the answer is unknown: it is better to abstain than to guess."""
MISSING_CAP = 0.9
"""Most that a hypothesis can reach while evidence it asked for is missing."""
UNEXPLAINING_CAP = 0.49
"""Most that a latency cause can reach that explains less than half of the latency: too little to be accused."""
MAX_HYPOTHESES = 5

T = TypeVar("T")
Answer = tuple[CheckMeta, Finding]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Hypotheses by weight, what they rule out, whether the first may be believed, and the share left to no cause (0-1)."""

    candidates: tuple[Candidate, ...]
    faults: tuple[int, ...]
    ruled_out: tuple[RuledOut, ...]
    decided: bool
    leak: float


def rank(ctx: Context, answers: Sequence[Answer]) -> Ranking:
    """Weigh all answers of all checks."""
    by_cause: dict[str, list[Answer]] = {}
    for answer in answers:
        if answer[1].status is Status.FIRED:
            by_cause.setdefault(answer[1].cause, []).append(answer)
    merged = sorted((_merge(ctx, found) for found in by_cause.values()), key=order)
    kept, explained = explain_away(ctx, _held_to_account(ctx, merged))
    ordered = sorted(kept, key=_first)[:MAX_HYPOTHESES]
    if _decided(ordered, number(ctx, ordered)):
        # What to measure next is of use only while there is no answer.
        ordered = [c for c in ordered if c.verdict is not Verdict.UNKNOWN or c.confidence >= ABSTAIN]
    faults = number(ctx, ordered)
    ruled_out = explained + tuple(
        RuledOut(cause=f.cause, because=f.because, scope=f.scopes[0] if f.scopes else None)
        for _, f in answers
        if f.status is Status.CLEAR and f.cause not in by_cause
    )
    best: dict[int, float] = {}
    for candidate, fault in zip(ordered, faults, strict=True):
        best[fault] = max(best.get(fault, 0.0), candidate.confidence)
    return Ranking(
        tuple(ordered), faults, _unique(ruled_out), _decided(ordered, faults), leak(best[f] for f in sorted(best))
    )


def _first(candidate: Candidate) -> tuple[bool, float, int, str]:
    return (candidate.verdict is Verdict.UNKNOWN, -candidate.weight, candidate.meta.tier, candidate.cause)


def _held_to_account(ctx: Context, ordered: list[Candidate]) -> list[Candidate]:
    """Limit latency causes that explain less than half of the latency, and say so.

    Each is asked alone first; then again beside the believed ones that explain more, which may have had their part.
    """
    account = Account(ctx)
    if unfelt(ctx):
        return [_unfelt(ctx, c) if _borne(ctx, c) or _untouching(ctx, c) else c for c in ordered]
    if momentary(ctx):
        ordered = [_passing(ctx, c) if _load(c) and _latency(c) and not _other(c) else c for c in ordered]
    if not account.asks:
        return ordered
    alone = [(c, account.share((c.cause, c.scopes))) for c in ordered]
    greatest = sorted(
        ((c, s) for c, s in alone if s is not None and c.weight >= ABSTAIN), key=lambda item: (-item[1], item[0].cause)
    )
    found = []
    for candidate, share in alone:
        if share is None or share >= HALF:
            found.append(candidate)
            continue
        others: list[Suspect] = [(c.cause, c.scopes) for c, s in greatest if c is not candidate and s > share]
        share = account.share((candidate.cause, candidate.scopes), others) if others else share
        found.append(candidate if share is None or share >= HALF else _unexplaining(ctx, account, candidate, share))
    return found


def _unexplaining(ctx: Context, account: Account, candidate: Candidate, share: float) -> Candidate:
    said = ctx.saw(
        "ttft_seconds" if account.ttft_high else "itl_seconds",
        None,
        f"at most {share:.0%} of its excess is explained",
        f"{HALF:.0%}",
        basis="physics",
        ratio=WEAK,
        group="counterfactual",
    )
    return _limited(candidate, said)


def _borne(ctx: Context, candidate: Candidate) -> bool:
    """Whether it is load, and no client is known to feel it."""
    return _load(candidate) and unfelt(ctx)


def _untouching(ctx: Context, candidate: Candidate) -> bool:
    """Whether all that speaks for it is being out of line, and no latency is what it was not before."""
    return _latency(candidate) and kept(ctx) and _compared(ctx, candidate) and untouched(ctx)


def _latency(candidate: Candidate) -> bool:
    # Uneven load is a symptom of its own, which its causes explain.
    return candidate.cause in MECHANISMS and not candidate.decisive and Symptom.SKEW not in candidate.symptoms


def _load(candidate: Candidate) -> bool:
    return candidate.verdict is Verdict.OVERLOAD


def _other(candidate: Candidate) -> bool:
    """Whether requests, or the pools, are surely other ones than before: that is no burst, which passes."""
    return any(w.group in (LENGTH, MOVED) for w in candidate.for_)


def _compared(ctx: Context, candidate: Candidate) -> bool:
    """Whether all that strongly speaks for it is a comparison with peers or the past, and no mean is over a promise."""
    return not any(
        w.ratio >= STRONG and (w.evidence.basis not in COMPARED or _breaks(ctx, w.evidence)) for w in candidate.for_
    )


def _breaks(ctx: Context, seen: Evidence) -> bool:
    """Whether a worker's own mean ITL is over the promise: all that it serves then feel it."""
    promised = ctx.slo.itl_s
    value = seen.observed
    return promised is not None and seen.signal == "itl_seconds.mean" and isinstance(value, float) and value > promised


def _unfelt(ctx: Context, candidate: Candidate) -> Candidate:
    """Limit a cause while clients see latencies within their promise."""
    signal, seen, promised = ("ttft_seconds", ctx.ttft(), ctx.slo.ttft_s)
    if not ctx.at_clients(signal):
        signal, seen, promised = ("itl_seconds", ctx.itl(), ctx.slo.itl_s)
    said = ctx.saw(signal, None, seen, promised, basis="config", ratio=WEAK, group="counterfactual")
    return _limited(candidate, said)


def _passing(ctx: Context, candidate: Candidate) -> Candidate:
    """Limit load that put latencies over their promise in one half of the window only."""
    high = "ttft_seconds" if picture(ctx).ttft_high else "itl_seconds"
    text = "over the promise in one half of the window"
    said = ctx.saw(high, None, text, "in both", basis="config", ratio=WEAK, group="counterfactual")
    return _limited(candidate, said)


def _limited(candidate: Candidate, said: Weighed) -> Candidate:
    return replace(
        candidate,
        weight=min(candidate.weight, UNEXPLAINING_CAP),
        confidence=min(candidate.confidence, UNEXPLAINING_CAP),
        against=(*candidate.against, said),
    )


def hypothesis(ctx: Context, candidate: Candidate, fault: int) -> Hypothesis:
    """Return a candidate as it is published, with guilty workers named beside their pool where single series tell."""
    return Hypothesis(
        fault=fault,
        cause=candidate.cause,
        check=candidate.meta.id,
        layer=candidate.layer,
        confidence=round(candidate.confidence, 3),
        scopes=_unique((*place(ctx, candidate.scopes), *_guilty(ctx, candidate))),
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


def _merge(ctx: Context, found: list[Answer]) -> Candidate:
    scored = sorted(found, key=lambda a: (-confidence(a[1].for_, a[1].against), a[0].tier, a[0].id))
    meta, best = scored[0]
    for_ = counting(ctx, _flat(f.for_ for _, f in scored))
    against = counting(ctx, _flat(f.against for _, f in scored))
    missing = _flat(f.missing for _, f in scored)
    # What cannot be believed by itself does not lift the limit that another check knows of.
    sure = [f.cap for _, f in scored if confidence(f.for_, f.against) >= ABSTAIN]
    cap = min(max(sure, default=best.cap), MISSING_CAP if missing else 1.0)
    # A limit stands whatever the calibration says: it is there for what the weights cannot know.
    weight = min(calibration().at(min(confidence(for_, against), cap)), cap)
    return Candidate(
        cause=best.cause,
        meta=meta,
        layer=best.layer or catalog().causes[best.cause].layer,
        weight=weight,
        confidence=min(weight, ceiling(ctx)),
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


def _decided(ordered: Sequence[Candidate], faults: tuple[int, ...]) -> bool:
    if not ordered or ordered[0].confidence < ABSTAIN or ordered[0].verdict is Verdict.UNKNOWN:
        return False
    rivals = [
        c
        for c, fault in zip(ordered[1:], faults[1:], strict=True)
        if fault == faults[0] and c.layer is not ordered[0].layer and c.verdict is not Verdict.UNKNOWN
    ]
    return all(ordered[0].weight - rival.weight >= MARGIN for rival in rivals)


def _flat(groups: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return _unique(item for group in groups for item in group)


def _unique(items: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(items))
