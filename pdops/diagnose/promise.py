"""Whether clients themselves show that promises are kept, or broken for a moment only: then there is little that a cause could explain."""

from __future__ import annotations

from math import sqrt

from pdops.diagnose import past
from pdops.diagnose.context import SURE_Z, Context, once
from pdops.diagnose.symptoms import WORSE, picture
from pdops.model.cluster import CLIENT
from pdops.model.report import Symptom
from pdops.model.series import Reading, Window


@once
def kept(ctx: Context) -> bool:
    """Return whether clients tell latencies and errors, neither latency is over its promise by more than chance, and nothing hurts.

    Load that a cluster bears is not overload.
    """
    return not _hurts(ctx) and all(_told(ctx)) and picture(ctx).errors.known


@once
def unfelt(ctx: Context) -> bool:
    """Return whether nothing hurts, as far as clients tell: one of their latencies is enough where a cluster is watched.

    It does not say that the promise is kept, only that nobody is known to feel what is found. A written case gives what
    its author knew, so there both must be told, and errors.
    """
    return kept(ctx) or (not ctx.view.relative and not _hurts(ctx) and any(_told(ctx)))


def _hurts(ctx: Context) -> bool:
    return bool(set(picture(ctx).symptoms) - {Symptom.SKEW, Symptom.STARTUP})


def _told(ctx: Context) -> tuple[bool, bool]:
    """Return whether clients tell TTFT, and ITL, as a number that can be set beside a promise."""
    seen = picture(ctx)
    return (
        ctx.slo.ttft_s is not None and ctx.at_clients("ttft_seconds") and seen.ttft.bound != "ge",
        ctx.slo.itl_s is not None and ctx.at_clients("itl_seconds") and seen.itl.bound != "ge",
    )


@once
def momentary(ctx: Context) -> bool:
    """Return whether latencies alone hurt, and only in one half of the judged window.

    A burst that queues for some seconds puts more than a twentieth of a minute's requests over the promise; load that lasts
    does so in both halves. A half in which nothing ended, or of which only a bound is known, may be as bad as the other.
    """
    seen = picture(ctx)
    hurt = set(seen.symptoms) - {Symptom.SKEW, Symptom.STARTUP}
    if not hurt or not hurt <= {Symptom.TTFT, Symptom.ITL} or ctx.view.relative:
        return False
    now = ctx.view.now
    middle_s = (now.start_s + now.end_s) / 2
    halves = (Window(now.start_s, middle_s), Window(middle_s, now.end_s))
    for high, asked, limit in ((seen.ttft_high, ctx.ttft, ctx.slo.ttft_s), (seen.itl_high, ctx.itl, ctx.slo.itl_s)):
        if high and (limit is None or not any(_within(asked(half), limit) for half in halves)):
            return False
    return True


def _within(seen: Reading, limit_s: float) -> bool:
    return seen.known and seen.bound != "ge" and not seen.above(limit_s)


@once
def untouched(ctx: Context) -> bool:
    """Return whether promises are kept, not even by chance broken, and mean latencies are known to be what they were.

    Where a mean is not told, the percentile of the promise stands for it. A worker or link that is out of line and
    lengthens them is worth a word before the promise breaks; one that does not, with few requests behind its mean, is
    mostly chance.
    """
    seen = picture(ctx)
    if not kept(ctx):
        return False
    for signal, now, before, limit in (
        ("ttft_seconds", seen.ttft, seen.ttft_before, ctx.slo.ttft_s),
        ("itl_seconds", seen.itl, seen.itl_before, ctx.slo.itl_s),
    ):
        mean, was = ctx.ask.mean(CLIENT, signal), past.mean(ctx, CLIENT, signal)
        if not mean.known or was is None:
            mean, was = now, before
        if limit is None or now.above(limit) or was is None or mean.above(_worse(mean.n) * was):
            return False
    return True


def _worse(n: int) -> float:
    """Return how many times its past a mean of so few events must be not to be chance (one-sided 99 %, exponential)."""
    return max(WORSE, 1.0 + SURE_Z / sqrt(n)) if n else WORSE
