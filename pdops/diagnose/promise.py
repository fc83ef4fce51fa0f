"""Whether clients themselves show that every promise is kept: then there is no wait that a cause could explain."""

from __future__ import annotations

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.symptoms import WORSE, picture
from pdops.model.cluster import CLIENT
from pdops.model.report import Symptom

_LATENCIES = ("ttft_seconds", "itl_seconds")


def kept(ctx: Context) -> bool:
    """Return whether clients tell both latencies, neither is over its promise by more than chance, and nothing else hurts.

    Load that a cluster bears is not overload.
    """
    seen = picture(ctx)
    if set(seen.symptoms) - {Symptom.SKEW, Symptom.STARTUP}:
        return False
    limits = (ctx.slo.ttft_s, ctx.slo.itl_s)
    told = all(ctx.at_clients(signal) for signal in _LATENCIES)
    return told and None not in limits and seen.ttft.bound != "ge" and seen.itl.bound != "ge"


def untouched(ctx: Context) -> bool:
    """Return whether promises are kept, not even by chance broken, and mean latencies are what they were.

    A worker or link that is out of line and lengthens them is worth a word before the promise breaks; one that does not,
    with few requests behind its mean, is mostly chance.
    """
    seen = picture(ctx)
    over = [
        r.above(limit) for r, limit in ((seen.ttft, ctx.slo.ttft_s), (seen.itl, ctx.slo.itl_s)) if limit is not None
    ]
    return kept(ctx) and not any(over) and not any(_grew(ctx, signal) for signal in _LATENCIES)


def _grew(ctx: Context, signal: str) -> bool:
    before = past.mean(ctx, CLIENT, signal)
    return before is not None and before > 0 and ctx.ask.mean(CLIENT, signal).above(WORSE * before)
