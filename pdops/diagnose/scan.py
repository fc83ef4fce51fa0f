"""Find the instant of a recording that says most, or judge it at a given one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pdops.diagnose.engine import assess
from pdops.history.ring import WINDOW_S, Ring
from pdops.model.cluster import Cluster
from pdops.model.frame import Frame
from pdops.model.report import Report, Verdict
from pdops.model.view import View

STEP_S = 5.0
"""Distance between the instants that are judged."""

_STRENGTH = {Verdict.FAULT: 2, Verdict.OVERLOAD: 2, Verdict.UNKNOWN: 1, Verdict.HEALTHY: 0}


@dataclass(frozen=True, slots=True)
class Judged:
    """What was seen at an instant, what follows, and how heavy the evidence for it is (0-1)."""

    view: View
    report: Report
    weight: float = 0.0


def at(
    frames: Iterable[Frame], cluster: Cluster, at_s: float, *, interval_s: float = 1.0, window_s: float = WINDOW_S
) -> Judged:
    """Judge a recording at one instant (Unix seconds), from nothing that came after it."""
    ring = Ring(cluster, interval_s=interval_s, window_s=window_s)
    for frame in frames:
        if frame.at_s > at_s:
            break
        ring.add(frame)
    return _judge(ring.view(at_s))


def strongest(
    frames: Iterable[Frame],
    cluster: Cluster,
    *,
    interval_s: float = 1.0,
    step_s: float = STEP_S,
    window_s: float = WINDOW_S,
) -> Judged:
    """Judge every few seconds and return the strongest verdict that is not healthy, the first on a tie.

    A recording that is healthy throughout gives its last instant. Unknown while the first window fills says nothing
    about the cluster and is passed over.
    """
    ring = Ring(cluster, interval_s=interval_s, window_s=window_s)
    best: Judged | None = None
    last: Judged | None = None
    next_s: float | None = None
    for frame in frames:
        ring.add(frame)
        if next_s is None:
            next_s = frame.at_s + step_s
        if frame.at_s < next_s:
            continue
        next_s = frame.at_s + step_s
        last = _judge(ring.view())
        if _says(last.report) and (best is None or _strength(last) > _strength(best)):
            best = last
    return best or last or _judge(ring.view())


def _judge(view: View) -> Judged:
    assessed = assess(view)
    return Judged(view, assessed.report, assessed.weight)


def _says(report: Report) -> bool:
    filling = report.verdict is Verdict.UNKNOWN and any(m.signal == "history" for m in report.missing)
    return report.verdict is not Verdict.HEALTHY and not filling


def _strength(judged: Judged) -> tuple[int, float]:
    # Not by confidence: with little history it stays low whatever the evidence, and early moments would never count.
    return _STRENGTH[judged.report.verdict], judged.weight
