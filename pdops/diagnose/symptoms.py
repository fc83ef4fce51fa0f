"""What the person on call sees first: the entry to the triage matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import sqrt
from statistics import stdev

from pdops.diagnose.context import SURE_Z, Context, once
from pdops.model.cluster import CLIENT, Role
from pdops.model.frame import EventKind
from pdops.model.report import Symptom
from pdops.model.series import Reading, Window
from pdops.model.view import Presence
from pdops.stats.robust import skew

WORSE = 1.5
"""A latency this many times its own history is a symptom even inside the SLO or without one."""
ERROR_SHARE = 0.01
"""Failed over finished requests above which errors are a symptom; one in a hundred is the usual 99 % objective."""
SKEW = 1.8
"""Greatest over mean load of a pool's workers above which load is skewed."""
FALL = 0.8
"""Goodput below this share of its history is a symptom, if by more than chance and the bursts of the past make of it."""
_MIN_LOAD = 2.0
_WINDOWS = 3
"""Windows of the past from which their own ebb and flow can be told; of a short past, parts of a window."""


@dataclass(frozen=True, slots=True)
class Picture:
    """The latencies and error share now and before, and the symptoms they make."""

    ttft: Reading
    ttft_before: float | None
    itl: Reading
    itl_before: float | None
    errors: Reading
    ttft_high: bool
    itl_high: bool
    symptoms: tuple[Symptom, ...]


@once
def picture(ctx: Context) -> Picture:
    """Judge the window against the SLO, else against history."""
    base = ctx.view.base
    ttft, itl = ctx.ttft(), ctx.itl()
    ttft_before = ctx.ttft(base).value if base else None
    itl_before = ctx.itl(base).value if base else None
    ttft_high = _high(ctx, "ttft_seconds", ttft, ttft_before, ctx.slo.ttft_s)
    itl_high = _high(ctx, "itl_seconds", itl, itl_before, ctx.slo.itl_s)
    errors = ctx.error_share()
    found: list[Symptom] = []
    if _wrong_answers(ctx):
        found.append(Symptom.WRONG_ANSWERS)
    if errors.above(ERROR_SHARE) or _grew(ctx, CLIENT, "request_timeouts"):
        found.append(Symptom.ERRORS)
    if ttft_high and not (
        itl_high and _excess(itl, ctx.slo.itl_s, itl_before) > _excess(ttft, ctx.slo.ttft_s, ttft_before)
    ):
        found.append(Symptom.TTFT)
    elif itl_high:
        found.append(Symptom.ITL)
    if not found and _goodput_falls(ctx):
        found.append(Symptom.GOODPUT)
    if any(_skewed(ctx, role) for role in (Role.PREFILL, Role.DECODE)):
        found.append(Symptom.SKEW)
    if _starting(ctx):
        found.append(Symptom.STARTUP)
    if any(h.presence in (Presence.STALE, Presence.NEVER) for h in ctx.view.health.values()) or not ctx.view.series:
        found.append(Symptom.NO_DATA)
    return Picture(ttft, ttft_before, itl, itl_before, errors, ttft_high, itl_high, tuple(found))


def _high(ctx: Context, signal: str, now: Reading, before: float | None, promised: float | None) -> bool:
    if promised is not None:
        return ctx.exceeds(signal, promised)
    return before is not None and before > 0 and now.above(before * WORSE)


def _excess(now: Reading, promised: float | None, before: float | None) -> float:
    reference = promised or before
    return now.value / reference if now.value is not None and reference else 0.0


def _grew(ctx: Context, scope: str, signal: str) -> bool:
    return ctx.ask.increase(scope, signal).above(0.0)


def _wrong_answers(ctx: Context) -> bool:
    late = any(_grew(ctx, unit, "kv_notifications_after_expiry") for unit in ctx.units(Role.PREFILL))
    return late or any(p.ok is False for p in ctx.canaries())


def _goodput_falls(ctx: Context) -> bool:
    now = ctx.ask.rate(CLIENT, "request_success")
    before = ctx.before(lambda scope, window: ctx.ask.rate(scope, "request_success", window), CLIENT)
    if before is None or before <= 0 or not now.below(before * FALL) or _fewer_arrive(ctx):
        return False
    usual, came = before * ctx.view.now.span_s, (now.value or 0.0) * ctx.view.now.span_s
    ebb = _ebb(ctx)
    return ebb is not None and usual - came > SURE_Z * max(sqrt(usual), ebb)


def _ebb(ctx: Context) -> float | None:
    """Return by how many requests windows of the past differ (standard deviation): bursts make more of that than chance.

    Of a past of fewer than three windows its thirds tell: what they differ by grows with the root of the time. 0 in a
    written case, which has no windows; None where the past is not known.
    """
    base, span_s = ctx.view.base, ctx.view.now.span_s
    if ctx.view.relative:
        return 0.0
    if base is None:
        return None
    width_s = min(span_s, base.span_s / _WINDOWS)
    starts = [base.end_s - (i + 1) * width_s for i in range(int(base.span_s / width_s + 1e-9))]
    rates = [ctx.ask.rate(CLIENT, "request_success", Window(s, s + width_s)).value for s in starts]
    known = [r * width_s for r in rates if r is not None]
    return stdev(known) * sqrt(span_s / width_s) if len(known) >= _WINDOWS else None


def _fewer_arrive(ctx: Context) -> bool:
    """Whether clients simply ask for less than before."""
    for pool in ctx.pools(Role.PREFILL):
        for signal in ("prompt_length", "prompt_tokens"):
            now, before = ctx.ask.rate(pool, signal), ctx.before(partial(_rate, ctx, signal), pool)
            if before is not None and before > 0 and now.known:
                return now.below(before * FALL)
    return False


def _rate(ctx: Context, signal: str, scope: str, window: Window | None) -> Reading:
    return ctx.ask.rate(scope, signal, window)


def _skewed(ctx: Context, role: Role) -> bool:
    loads = [ctx.ask.level(u, "running_requests").value for u in ctx.units(role) if ctx.settled(u)]
    known = [v for v in loads if v is not None]
    if len(known) < 2 or sum(known) < _MIN_LOAD * len(known):
        return False
    return (skew(known) or 0.0) >= SKEW


def _starting(ctx: Context) -> bool:
    kinds = (EventKind.RESTART, EventKind.ROLLOUT, EventKind.SCALE_OUT)
    return bool(ctx.events(kinds, within_s=300.0))
