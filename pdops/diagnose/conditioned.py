"""Whether a latency rose more than its load explains, and since when."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log

import numpy as np

from pdops.diagnose.context import Context, once
from pdops.diagnose.course import Course
from pdops.model.cluster import CLIENT, Role
from pdops.model.series import Floats
from pdops.stats.changes import Change, change
from pdops.stats.regression import fit

BASE_S = 300.0
"""Least length of the base window whose course is taken for usual."""
FELT = 1.2
"""A latency that moved by less than a fifth is not worth a reason."""
STRETCHED = 1.5
"""The same where the load left the range it had before: a full batch costs more than its share of the line."""
_FLOOR = log(1.1)
"""Spread that counts even where a quiet cluster varies less: a tenth."""
_MARGIN = 0.25
"""How far beyond the range seen before, as a share of it, a line still holds."""

_MEASURES: tuple[tuple[Role, str], ...] = (
    (Role.PREFILL, "prefill_seconds"),
    (Role.PREFILL, "ttft_seconds"),
    (Role.DECODE, "itl_seconds"),
    (Role.DECODE, "kv_transfer_seconds"),
)


@dataclass(frozen=True, slots=True)
class Shift:
    """The course of one latency of a pool.

    `before` is the usual value, `now` what it is and `expected` what the load of now explains, in the signal's unit: since
    the onset of what is `beyond` the load (in log units), else in the judged window.
    `within` False says that the load left the range it had before, where the expectation is generous, not exact.
    """

    scope: str
    signal: str
    before: float
    expected: float
    now: float
    beyond: Change | None
    drivers: tuple[str, ...]
    within: bool

    @property
    def unexplained(self) -> bool:
        """Whether it rose beyond what the load explains."""
        least = FELT if self.within else STRETCHED
        return self.beyond is not None and self.beyond.direction > 0 and exp(self.beyond.size) >= least

    @property
    def explained(self) -> bool:
        """Whether it rose and the load, inside the range seen before, accounts for that."""
        rose = min(self.now, self.expected) >= FELT * self.before
        return rose and not self.unexplained and self.within


@once
def shifts(ctx: Context) -> tuple[Shift, ...]:
    """Return the course of each latency of each pool; nothing without five minutes of base history."""
    base = ctx.view.base
    if base is None or base.span_s < BASE_S:
        return ()
    course = Course(ctx)
    found = [_shift(ctx, course, pool, signal) for role, signal in _MEASURES for pool in ctx.pools(role)]
    return tuple(s for s in found if s is not None)


def onset(ctx: Context, signal: str) -> Change | None:
    """Return since when a latency has been up for clients, else for the pool that measures it; None if it has not."""
    base = ctx.view.base
    if base is None or base.span_s < BASE_S:
        return None
    course = Course(ctx)
    role = Role.DECODE if signal == "itl_seconds" else Role.PREFILL
    for scope in (CLIENT, *ctx.pools(role)):
        mean, _ = course.mean(scope, signal)
        for column in (mean, *(course.level(scope, f"{signal}.{q}") for q in ("p95", "p99", "p50"))):
            known = ~np.isnan(column) & (column > 0)
            if known.any():
                seen = change(course.t[known], np.log(column[known]), base.end_s, _FLOOR)
                if seen is None or seen.direction < 0:
                    return None
                # A bin is known by its end; it may have begun with the change.
                return replace(seen, onset_s=seen.onset_s - course.width_s)
    return None


def _shift(ctx: Context, course: Course, pool: str, signal: str) -> Shift | None:
    base, now = ctx.view.base, ctx.view.now
    assert base is not None
    y, n = course.mean(pool, signal)
    names, columns = _drivers(course, pool, signal, n)
    told = [i for i, column in enumerate(columns) if not np.isnan(column).all()]
    x = np.column_stack([columns[i] for i in told]) if told else np.zeros((len(y), 0))
    known = ~np.isnan(y) & (y > 0) & ~np.isnan(x).any(axis=1)
    t, y, x = course.t[known], y[known], x[known]
    usual, judged = t <= base.end_s, t > now.start_s
    if not usual.any() or not judged.any():
        return None
    plane = fit(x[usual], y[usual])
    if plane is None:
        return None
    centre = float(np.median(y[usual]))
    span = np.maximum(plane.high - plane.low, 1e-12)
    inside = np.all((x >= plane.low - _MARGIN * span) & (x <= plane.high + _MARGIN * span), axis=1)
    expected = np.maximum(plane.at(x), 0.1 * centre)
    expected = np.where(inside, expected, np.maximum(expected, centre * _times(x, x[usual])))
    beyond = change(t, np.log(y / expected), base.end_s, _FLOOR)
    if beyond is not None:
        judged = t >= beyond.onset_s
    return Shift(
        scope=pool,
        signal=signal,
        before=centre,
        expected=float(np.median(expected[judged])),
        now=float(np.median(y[judged])),
        beyond=beyond,
        drivers=tuple(names[i] for i in told),
        within=bool(np.median(inside[judged].astype(np.float64)) > 0.5),
    )


def _times(x: Floats, usual: Floats) -> Floats:
    """Return how many times its usual size the greatest driver is: no latency here grows faster than its work."""
    if x.shape[1] == 0:
        return np.ones(len(x))
    middle = np.maximum(np.median(usual, axis=0), 1e-12)
    out: Floats = np.max(x / middle, axis=1)
    return np.maximum(out, 1.0)


def _drivers(course: Course, pool: str, signal: str, n: Floats) -> tuple[tuple[str, ...], list[Floats]]:
    """Return the names and columns of what a latency depends on in a sound cluster."""
    with np.errstate(invalid="ignore", divide="ignore"):
        each = np.where(n > 0, n, np.nan)
        if signal == "itl_seconds":
            names: tuple[str, ...] = ("running_requests", "kv_cache_usage")
            return names, [course.level(pool, name) for name in names]
        if signal == "kv_transfer_seconds":
            return ("kv_transfer_bytes", "transfers"), [course.grown(pool, "kv_transfer_bytes") / each, each]
        asked = course.grown(pool, "prompt_tokens")
        hits = course.grown(pool, "prefix_cache_hits")
        computed = np.maximum(asked - np.nan_to_num(hits), 0.0)
        return ("prompt_tokens", "requests"), [computed / each, each]
