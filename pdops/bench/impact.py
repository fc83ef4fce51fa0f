"""Whether clients really noticed, from what happened to every request; never from a metric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pdops.model.cluster import Slo

WINDOW_S = 30.0
LEAST_EVENTS = 40
"""With fewer requests than this in the window it reaches further back: two late ones of twenty are chance."""
WORSE = 0.05
"""Share of requests that must be bad beyond what was bad before; with it a promise that was always broken is no impact."""
INTERVALS = 3


@dataclass(frozen=True, slots=True)
class Felt:
    """One request as its client saw it, times in seconds from the first frame.

    `ttft_s` and `itl_s` None mean that no token, or no second one, ever came. `end_s` None: it was still under way.
    """

    arrival_s: float
    ttft_s: float | None
    itl_s: float | None
    end_s: float | None
    ok: bool
    left: bool = False


def noticed(requests: Iterable[Felt], slo: Slo, *, since_s: float, until_s: float, interval_s: float) -> float | None:
    """Return when the promise began to be broken after `since_s`, or None.

    Broken is a share of bad requests over `WINDOW_S` (at least `LEAST_EVENTS` of them) above what `slo.attainment`
    allows and `WORSE` above its mean before, for `INTERVALS` intervals in a row.
    """
    times, bad = _events(requests, slo, until_s)
    before = bad[times <= since_s]
    limit = max(1.0 - slo.attainment, (float(before.mean()) if len(before) else 0.0) + WORSE)
    return next(_beyond(times, bad, limit, since_s, until_s, interval_s), None)


def broken(requests: Iterable[Felt], slo: Slo, *, until_s: float, interval_s: float) -> tuple[float, ...]:
    """Return all moments at which the promise was broken for sure: by `WORSE` more than `slo.attainment` allows."""
    times, bad = _events(requests, slo, until_s)
    return tuple(_beyond(times, bad, 1.0 - slo.attainment + WORSE, 0.0, until_s, interval_s))


def stuttered(gaps: Mapping[int, tuple[int, int]], slo: Slo, *, until_s: float, interval_s: float) -> tuple[float, ...]:
    """Return all moments at which ITL at the promised percentile was over its promise: too many gaps of `WINDOW_S` were late.

    `gaps` are late ones and all, by second. A request's own mean hides gaps that its client saw, and an SLO on ITL is one on gaps.
    """
    seconds = np.arange(int(until_s) + 1)
    counts = np.array([gaps.get(int(s), (0, 0)) for s in seconds], dtype=np.int64)
    totals = np.vstack(([[0, 0]], np.cumsum(counts, axis=0)))
    found, run = [], 0
    for tick in np.arange(interval_s, until_s + 1e-6, interval_s):
        late, all_ = totals[int(tick)] - totals[max(0, int(tick - WINDOW_S))]
        run = run + 1 if late > (1.0 - slo.percentile) * all_ else 0
        if run >= INTERVALS:
            found.append(float(tick))
    return tuple(found)


def _beyond(
    times: np.ndarray, bad: np.ndarray, limit: float, since_s: float, until_s: float, interval_s: float
) -> Iterator[float]:
    """Yield the moments at which the share of bad requests has been above a limit for `INTERVALS` intervals."""
    if not len(times):
        return
    total = np.concatenate(([0], np.cumsum(bad)))
    run = 0
    for tick in np.arange(since_s + interval_s, until_s + 1e-6, interval_s):
        last = int(np.searchsorted(times, tick, side="right"))
        first = min(int(np.searchsorted(times, tick - WINDOW_S, side="right")), max(0, last - LEAST_EVENTS))
        share = (total[last] - total[first]) / (last - first) if last - first >= LEAST_EVENTS else 0.0
        run = run + 1 if share > limit else 0
        if run >= INTERVALS:
            yield float(tick)


def _events(requests: Iterable[Felt], slo: Slo, until_s: float) -> tuple[np.ndarray, np.ndarray]:
    """Return when each request turned out good (0) or bad (1), in order of time."""
    found: list[tuple[float, int]] = []
    for one in requests:
        if one.left:
            continue
        at_s, bad = _turned_out(one, slo)
        if at_s <= until_s:
            found.append((at_s, bad))
    found.sort()
    return np.array([t for t, _ in found]), np.array([b for _, b in found], dtype=np.int64)


def _turned_out(one: Felt, slo: Slo) -> tuple[float, int]:
    never = float("inf")
    if slo.ttft_s is not None and (one.ttft_s is None or one.ttft_s > slo.ttft_s):
        # It is late from the moment the promise passes, unless it failed before.
        late_s = one.arrival_s + slo.ttft_s
        return (min(late_s, one.end_s) if one.end_s is not None else late_s), 1
    if one.end_s is None:
        return never, 0
    slow = slo.itl_s is not None and one.itl_s is not None and one.itl_s > slo.itl_s
    return one.end_s, int(slow or not one.ok)


def normal(requests: Iterable[Felt], percentile: float) -> tuple[float, float] | None:
    """Return TTFT and mean ITL at a percentile (0-1) of requests that went well, or None without any."""
    good = [r for r in requests if r.ok]
    ttft = [r.ttft_s for r in good if r.ttft_s is not None]
    itl = [r.itl_s for r in good if r.itl_s is not None]
    if not ttft or not itl:
        return None
    return float(np.quantile(ttft, percentile)), float(np.quantile(itl, percentile))
