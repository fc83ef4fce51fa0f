"""Find the instant of a recording that says most, or judge it at a given one."""

from __future__ import annotations

from collections.abc import Iterable

from pdops.diagnose.engine import diagnose
from pdops.history.ring import WINDOW_S, Ring
from pdops.model.cluster import Cluster
from pdops.model.frame import Frame
from pdops.model.report import Report, Verdict

STEP_S = 5.0
"""Distance between the instants that are judged."""

_STRENGTH = {Verdict.FAULT: 2, Verdict.OVERLOAD: 2, Verdict.UNKNOWN: 1, Verdict.HEALTHY: 0}


def at(
    frames: Iterable[Frame], cluster: Cluster, at_s: float, *, interval_s: float = 1.0, window_s: float = WINDOW_S
) -> Report:
    """Judge a recording at one instant (Unix seconds), from nothing that came after it."""
    ring = Ring(cluster, interval_s=interval_s, window_s=window_s)
    for frame in frames:
        if frame.at_s > at_s:
            break
        ring.add(frame)
    return diagnose(ring.view(at_s))


def strongest(
    frames: Iterable[Frame],
    cluster: Cluster,
    *,
    interval_s: float = 1.0,
    step_s: float = STEP_S,
    window_s: float = WINDOW_S,
) -> Report:
    """Judge every few seconds and return the strongest verdict that is not healthy, the first on a tie.

    A recording that is healthy throughout gives its last instant. Unknown while the first window fills says nothing
    about the cluster and is passed over.
    """
    ring = Ring(cluster, interval_s=interval_s, window_s=window_s)
    best: Report | None = None
    last: Report | None = None
    next_s: float | None = None
    for frame in frames:
        ring.add(frame)
        if next_s is None:
            next_s = frame.at_s + step_s
        if frame.at_s < next_s:
            continue
        next_s = frame.at_s + step_s
        last = diagnose(ring.view())
        filling = last.verdict is Verdict.UNKNOWN and any(m.signal == "history" for m in last.missing)
        if not filling and last.verdict is not Verdict.HEALTHY and (best is None or _strength(last) > _strength(best)):
            best = last
    return best or last or diagnose(ring.view())


def _strength(report: Report) -> tuple[int, float]:
    return _STRENGTH[report.verdict], report.top.confidence if report.top is not None else 0.0
