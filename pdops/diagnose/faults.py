"""Which hypotheses are one fault, which follow from another, and which are faults of their own: at most three."""

from __future__ import annotations

from collections.abc import Sequence

from pdops.diagnose.candidate import ABSTAIN, Candidate
from pdops.diagnose.context import Context
from pdops.diagnose.finding import ANYTHING, DECISIVE, STRONG
from pdops.model.cluster import Pair
from pdops.model.report import RuledOut, Scope

MAX_FAULTS = 3
"""More faults at once than this are not told apart from the noise that the first ones make."""
_DISPLACE = frozenset(
    {
        "prefill-down",
        "decode-down",
        "breaker-open",
        "health-check-misfire",
        "prefill-slow-worker",
        "decode-slow-worker",
        "ratio-wrong",
    }
)
"""Causes that take load off some workers and put it on the others of the pool, which then are full without a fault."""


def order(candidate: Candidate) -> tuple[int, float, str]:
    """Return the place of a hypothesis in the order of thought."""
    return (candidate.meta.tier, -candidate.weight, candidate.cause)


def explain_away(ctx: Context, ordered: list[Candidate]) -> tuple[list[Candidate], tuple[RuledOut, ...]]:
    """Drop what follows from something better founded, directly or by way of something that follows from it.

    Where hypotheses explain each other in a ring and nothing outside explains any of them, the first in the order of
    thought is kept.
    """
    believed = [c for c in ordered if c.confidence >= ABSTAIN]
    origins = {id(c): [b for b in believed if b is not c and _explains(ctx, b, c)] for c in ordered}
    kept = [c for c in ordered if not origins[id(c)]]
    because = {id(c): c for c in kept}
    while True:
        _spread(ordered, origins, because)
        left = next((c for c in ordered if id(c) not in because), None)
        if left is None:
            break
        kept.append(left)
        because[id(left)] = left
    dropped = [_ruled_out(c, because[id(c)]) for c in ordered if because[id(c)] is not c]
    return [c for c in ordered if any(c is k for k in kept)], tuple(dropped)


def _spread(ordered: list[Candidate], origins: dict[int, list[Candidate]], because: dict[int, Candidate]) -> None:
    """Note for every hypothesis that follows from a known one which that is."""
    found = True
    while found:
        found = False
        for candidate in ordered:
            if id(candidate) in because:
                continue
            origin = next((o for o in origins[id(candidate)] if id(o) in because), None)
            if origin is not None:
                because[id(candidate)] = origin
                found = True


def _ruled_out(candidate: Candidate, origin: Candidate) -> RuledOut:
    because = f"follows from {origin.cause} ({', '.join(str(s) for s in origin.scopes) or 'whole cluster'})"
    return RuledOut(cause=candidate.cause, because=because, scope=candidate.scopes[0] if candidate.scopes else None)


def _explains(ctx: Context, origin: Candidate, effect: Candidate) -> bool:
    if effect.cause in origin.meta.explains:
        listed = True
    else:
        listed = ANYTHING in origin.meta.explains and effect.meta.tier > origin.meta.tier
    mutual = origin.cause in effect.meta.explains and _earlier(effect, origin)
    displaced = origin.cause in _DISPLACE and origin.cause != effect.cause
    return listed and not mutual and (displaced or _related(ctx, origin.scopes, effect.scopes))


def _earlier(effect: Candidate, origin: Candidate) -> bool:
    """Whether of two that explain each other the effect is the origin: what somebody did comes before what then ran full."""
    done, full = _done(effect), _done(origin)
    return done if done is not full else order(effect) < order(origin)


def _done(candidate: Candidate) -> bool:
    return any(w.evidence.basis == "log" and w.ratio >= STRONG for w in candidate.for_)


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


def number(ctx: Context, ordered: Sequence[Candidate]) -> tuple[int, ...]:
    """Give alternatives the number of the fault they compete for, and independent faults a new one, greedily.

    A fault of its own is on other workers of the same role, or rests on decisive evidence that the ones before it do not
    use, or is elsewhere altogether. Beyond `MAX_FAULTS` the rest compete for the last.
    """
    numbers: list[int] = []
    leaders: list[Candidate] = []
    for candidate in ordered:
        for place, leader in enumerate(leaders, start=1):
            if (
                not _apart(candidate, leader)
                and not _elsewhere(ctx, candidate, leader)
                and _related(ctx, leader.scopes, candidate.scopes)
            ):
                numbers.append(place)
                break
        else:
            if len(leaders) < MAX_FAULTS:
                leaders.append(candidate)
            numbers.append(len(leaders))
    return tuple(numbers)


def _elsewhere(ctx: Context, candidate: Candidate, leader: Candidate) -> bool:
    """Whether two believed hypotheses are about other workers, rest on other signals, and neither explains the other."""
    first, second = _workers(ctx, leader.scopes), _workers(ctx, candidate.scopes)
    if candidate.confidence < ABSTAIN or not first or not second or first & second:
        return False
    if candidate.cause in leader.meta.explains or leader.cause in candidate.meta.explains:
        return False
    return not _strong(candidate) & _strong(leader)


def _strong(candidate: Candidate) -> set[str]:
    return {w.evidence.signal.partition(".")[0] for w in candidate.for_ if w.ratio >= STRONG}


def _apart(candidate: Candidate, leader: Candidate) -> bool:
    if candidate.confidence < ABSTAIN or not leader.decisive:
        return False
    used = {w.evidence for w in leader.for_}
    return any(w.ratio >= DECISIVE and w.evidence not in used for w in candidate.for_)
