"""How good answers were, with how sure we can be of that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pdops.bench.outcome import Outcome, Said
from pdops.model.report import Verdict

PDOPS, UNKNOWN = "pdops", Verdict.UNKNOWN.value
RESAMPLES = 1000
"""Bootstrap resamples; 1,000 give the 95 % interval to about half a point."""
BINS = 10
MISSING_BINS = ((0.0, 0.0), (0.1, 0.2), (0.2, 0.3), (0.3, 0.4))
ABSTAIN = 0.5
"""A hypothesis below this confidence is not counted as a fault that was announced."""

Judge = Callable[[Outcome], bool]


@dataclass(frozen=True, slots=True)
class Rate:
    """A share (0-1) of `n` cases with its 95 % interval; None of no case."""

    value: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One method on all episodes in which clients noticed a fault.

    Macro means: every kind counts the same. `false_share` is the share of healthy episodes it called faulty,
    `unknown_share` of those in which it would not say. `unseen` is the share of kinds nobody tuned on in which it would
    not say or was right about the place; calling them healthy is neither.
    """

    method: str
    top1: Rate
    top3: Rate
    scope: Rate
    layer: Rate
    verdict: Rate
    answered: Rate
    false_share: Rate
    unknown_share: Rate
    both: Rate
    exact: Rate
    unseen: Rate


def faults(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the episodes in which clients noticed a fault, those of kinds only the held-out split has left out."""
    return [o for o in outcomes if o.state == "fault" and not o.unseen]


def healthy(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the healthy episodes."""
    return [o for o in outcomes if o.state == "healthy"]


def watched(outcomes: Iterable[Outcome]) -> bool:
    """Return whether healthy time and delays of any were watched, and not only the scored answers asked for."""
    return any(map(was_watched, outcomes))


def was_watched(outcome: Outcome) -> bool:
    """Return whether one episode was watched; files that are scored together may differ in that."""
    return bool(outcome.healthy_s or outcome.broken_s or outcome.delay_s is not None)


def methods(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Return every method that answered, pdops first."""
    found = {name for o in outcomes for name in o.said}
    return (PDOPS, *sorted(found - {PDOPS}))


def score(outcomes: Sequence[Outcome], method: str) -> Scored:
    """Score one method."""
    known = [o for o in outcomes if method in o.said]
    noticed, sound = faults(known), healthy(known)
    single = [o for o in noticed if len(o.expected) == 1]
    double = [o for o in noticed if len(o.expected) > 1]
    # Beside a second fault, what is right of that one would count for the unseen kind.
    fresh = [o for o in known if o.state == "fault" and o.unseen and len(o.expected) == 1]
    return Scored(
        method=method,
        top1=macro(single, lambda o: top(o, method, 1)),
        top3=macro(single, lambda o: top(o, method, 3)),
        scope=macro(single, lambda o: o.right.get(method, False)),
        layer=macro(single, lambda o: layer_right(o, method)),
        verdict=macro(single, lambda o: o.said[method].verdict in o.expected[0].verdicts),
        answered=macro(single, lambda o: stands(o.said[method])),
        false_share=plain(sound, lambda o: stands(o.said[method])),
        unknown_share=plain(sound, lambda o: _abstains(o.said[method])),
        both=plain(double, lambda o: all(_named(o, method, i, 3) for i in range(len(o.expected)))),
        exact=plain(double, lambda o: exact_set(o, method)),
        unseen=plain(fresh, lambda o: _abstains(o.said[method]) or o.right.get(method, False)),
    )


def stands(said: Said) -> bool:
    """Whether a method announces a fault and stands for its first cause."""
    return said.alarm and not said.abstained and bool(said.causes)


def _abstains(said: Said) -> bool:
    """Whether a method says that something is wrong and not what; one that says nothing or healthy does not."""
    return said.alarm and not stands(said)


def top(outcome: Outcome, method: str, k: int) -> bool:
    """Whether a right cause is among the first k; the first one counts only if the method stands for it.

    Where the truth allows the verdict `unknown`, that is a right answer.
    """
    said = outcome.said[method]
    if said.verdict == UNKNOWN and all(UNKNOWN in e.verdicts for e in outcome.expected):
        return True
    if k == 1 and not stands(said):
        return False
    return said.alarm and any(_named(outcome, method, i, k) for i in range(len(outcome.expected)))


def layer_right(outcome: Outcome, method: str) -> bool:
    """Whether the layer of the first answer is one of the right ones."""
    said = outcome.said[method]
    return stands(said) and any(said.layer in e.layers_ok for e in outcome.expected)


def exact_set(outcome: Outcome, method: str) -> bool:
    """Whether the faults that are announced are those that are there, no more and no less."""
    said = outcome.said[method]
    leaders: dict[int, str] = {}
    for cause, fault, confidence in zip(said.causes, said.faults, said.confidences, strict=True):
        if confidence >= ABSTAIN:
            leaders.setdefault(fault, cause)
    if not stands(said) or len(leaders) != len(outcome.expected):
        return False
    named = list(leaders.values())
    return all(any(c in e.causes for c in named) for e in outcome.expected)


def stated(outcomes: Iterable[Outcome], method: str) -> list[tuple[float, bool]]:
    """Return (confidence, right) of every first answer that a method stands for, healthy episodes included."""
    return [
        (o.said[method].confidences[0], o.state == "fault" and top(o, method, 1))
        for o in outcomes
        if o.state in ("fault", "healthy") and not o.unseen and method in o.said and stands(o.said[method])
    ]


def brier(pairs: Sequence[tuple[float, bool]]) -> float | None:
    """Return the mean squared difference between confidence and truth."""
    return float(np.mean([(c - ok) ** 2 for c, ok in pairs])) if pairs else None


def reliability(pairs: Sequence[tuple[float, bool]], bins: int = BINS) -> list[tuple[float, float, int]]:
    """Return (mean confidence, share right, n) of bins with equally many answers; equals share what they got right."""
    ordered = _levelled(pairs)
    parts = np.array_split(np.arange(len(ordered)), min(bins, len(ordered))) if ordered else []
    return [
        (float(np.mean([ordered[i][0] for i in p])), float(np.mean([ordered[i][1] for i in p])), len(p)) for p in parts
    ]


def ece(pairs: Sequence[tuple[float, bool]]) -> float | None:
    """Return the expected calibration error over bins of equal mass."""
    if not pairs:
        return None
    return sum(n * abs(said - right) for said, right, n in reliability(pairs)) / len(pairs)


def risk_coverage(outcomes: Sequence[Outcome], method: str) -> list[tuple[float, float]]:
    """Return (share of faults answered, share of those answers wrong) as the confidence asked for falls."""
    noticed = [o for o in faults(outcomes) if method in o.said]
    answered = [(o.said[method].confidences[0], top(o, method, 1)) for o in noticed if stands(o.said[method])]
    wrong, curve = 0.0, []
    for count, (_, right) in enumerate(reversed(_levelled(answered)), start=1):
        wrong += 1.0 - right
        curve.append((count / len(noticed), wrong / count))
    return curve


def by_missing(outcomes: Sequence[Outcome], method: str) -> list[tuple[str, Rate]]:
    """Return the share of right first causes by the share of metrics that were missing."""
    found: list[tuple[str, Rate]] = []
    for low, high in MISSING_BINS:
        group = [o for o in faults(outcomes) if low <= o.missing_ratio <= high and method in o.said]
        name = "none" if high == 0 else f"{low:.0%}–{high:.0%}"
        found.append((name, plain(group, lambda o: top(o, method, 1))))
    return found


def split_by(outcomes: Sequence[Outcome], key: Callable[[Outcome], str], judge: Judge) -> dict[str, Rate]:
    """Return a rate per value of a key, in order of first appearance."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), []).append(outcome)
    return {name: plain(group, judge) for name, group in groups.items()}


def alarms_per_hour(outcomes: Sequence[Outcome], *, only: Judge = lambda _: True) -> tuple[float | None, float, float]:
    """Return false alarms per healthy hour, the upper end of its 95 % interval (Poisson), and the hours."""
    chosen = [o for o in outcomes if only(o)]
    hours = sum(o.healthy_s for o in chosen) / 3600.0
    count = sum(o.alarms for o in chosen)
    if hours <= 0:
        return None, float("nan"), 0.0
    return count / hours, _poisson_upper(count) / hours, hours


def plain(group: Sequence[Outcome], judge: Judge) -> Rate:
    """Return the share of episodes, with Wilson's interval."""
    n = len(group)
    if n == 0:
        return Rate(None, None, None, 0)
    share, z = sum(judge(o) for o in group) / n, 1.96
    centre, spread = share + z * z / (2 * n), z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return Rate(share, max(0.0, float((centre - spread) / scale)), min(1.0, float((centre + spread) / scale)), n)


def macro(group: Sequence[Outcome], judge: Judge, seed: int = 0) -> Rate:
    """Return the mean over kinds of the share of their episodes, with a bootstrap interval over kinds and episodes.

    Kinds are drawn again too: with few episodes each, those alone would make an interval of no width.
    """
    kinds: dict[str, list[float]] = {}
    for outcome in group:
        kinds.setdefault(outcome.kinds[0], []).append(float(judge(outcome)))
    if not kinds:
        return Rate(None, None, None, 0)
    rng = np.random.default_rng(seed)
    arrays = [np.asarray(values) for values in kinds.values()]
    each = np.array([a[rng.integers(0, len(a), (RESAMPLES, len(a)))].mean(axis=1) for a in arrays])
    drawn = rng.integers(0, len(arrays), (RESAMPLES, len(arrays)))
    means = each[drawn, np.arange(RESAMPLES)[:, None]].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return Rate(float(np.mean([a.mean() for a in arrays])), float(low), float(high), len(group))


def _levelled(pairs: Sequence[tuple[float, bool]]) -> list[tuple[float, float]]:
    """Return the pairs by confidence, each with the share right of all that are equally sure.

    Any order among equals would favour or harm the method.
    """
    equals: dict[float, list[bool]] = {}
    for confidence, right in pairs:
        equals.setdefault(confidence, []).append(right)
    return [(c, float(np.mean(equals[c]))) for c in sorted(equals) for _ in equals[c]]


def _named(outcome: Outcome, method: str, fault: int, k: int) -> bool:
    return any(cause in outcome.expected[fault].causes for cause in outcome.said[method].causes[:k])


def _poisson_upper(count: int) -> float:
    """Return the upper 97.5 % bound of a Poisson mean (Wilson and Hilferty's approximation of the chi-square quantile)."""
    k = count + 1.0
    return float(k * (1.0 - 1.0 / (9.0 * k) + 1.96 / (3.0 * np.sqrt(k))) ** 3)
