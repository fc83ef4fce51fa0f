"""Whether clients themselves show that every promise is kept: then there is no wait that a cause could explain."""

from __future__ import annotations

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.symptoms import WORSE, picture
from pdops.model.cluster import CLIENT
from pdops.model.report import Symptom

_LATENCIES = ("ttft_seconds", "itl_seconds")


def kept(ctx: Context) -> bool:
    """Return whether clients tell latencies and errors, neither latency is over its promise by more than chance, and nothing hurts.

    Load that a cluster bears is not overload.
    """
    seen = picture(ctx)
    if set(seen.symptoms) - {Symptom.SKEW, Symptom.STARTUP}:
        return False
    limits = (ctx.slo.ttft_s, ctx.slo.itl_s)
    told = all(ctx.at_clients(signal) for signal in _LATENCIES)
    return told and seen.errors.known and None not in limits and seen.ttft.bound != "ge" and seen.itl.bound != "ge"


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
        if limit is None or now.above(limit) or was is None or mean.above(WORSE * was):
            return False
    return True
