"""One cause, with all that speaks for and against it, and how sure that makes it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from pdops.diagnose.finding import CheckMeta, Weighed
from pdops.model.report import DoNot, Layer, Missing, Scope, Symptom, Verdict

PRIOR = 0.1
"""Probability of a cause before any evidence; one decisive observation then gives 0.92, one moderate 0.40."""
LEAK = 0.5
"""Probability that a symptom shows while no cause that pdops knows is there; one half says that it is not known either way."""
ABSTAIN = 0.5
"""Below this confidence nobody is accused."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cause with everything that was said about it.

    `weight` is how sure the evidence makes it (0-1), and what hypotheses are compared by; `confidence` is what is
    published, which too little history limits further.
    """

    cause: str
    meta: CheckMeta
    layer: Layer
    weight: float
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


def confidence(for_: Iterable[Weighed], against: Iterable[Weighed]) -> float:
    """Return the posterior probability from likelihood ratios, the greatest of each group, starting from `PRIOR`."""
    log_odds = math.log(PRIOR / (1 - PRIOR))
    for sign, evidence in ((1.0, for_), (-1.0, against)):
        best: dict[str, float] = {}
        for item in evidence:
            best[item.group] = max(best.get(item.group, 1.0), item.ratio)
        log_odds += sign * sum(math.log(best[group]) for group in sorted(best))
    return 1.0 / (1.0 + math.exp(-log_odds))


def leak(strongest: Iterable[float]) -> float:
    """Return the probability that nothing listed caused what is seen, from the confidence of each fault's best hypothesis.

    Noisy-OR: causes act on their own, and beside them a leak of `LEAK`. With q = prod(1 - c) the answer is
    LEAK q / (1 - (1 - LEAK) q); 1 when nothing is listed.
    """
    q = math.prod(1.0 - c for c in strongest)
    return LEAK * q / (1.0 - (1.0 - LEAK) * q)
