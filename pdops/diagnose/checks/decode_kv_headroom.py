"""Decode has less KV left than it should keep."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, WEAK, CheckMeta, Finding, Status, Tier, Weighed
from pdops.model.cluster import Role
from pdops.model.report import DoNot, Verdict

META = CheckMeta(
    id="decode/kv-headroom",
    title="Less than 30 % of decode's KV is free",
    causes=("decode-kv-exhaustion",),
    needs=("kv_cache_usage",),
    tier=Tier.CAPACITY,
    alert="PDDecodeKvHeadroom",
    panel="decode/kv-usage",
)

HEADROOM = 0.3
"""Share of the KV pool to keep free at the window's 99th percentile (buffer of the capacity rules)."""
FULL = 0.9
"""From here on decode/kv-exhaustion judges it, by what waits and what is preempted."""
GREW = 0.1
"""Growth of the share in use that is more than noise."""
CAP = 0.45
"""At most: a pool that is well used is not yet one that is short: preemptions and waiting requests say that (decode/kv-exhaustion)."""


def check(ctx: Context) -> Iterator[Finding]:
    """Set the 99th percentile over time of the KV in use beside what should stay free."""
    for unit in ctx.units(Role.DECODE):
        usage = ctx.ask.highest(unit, "kv_cache_usage", 0.99)
        if not usage.above(1 - HEADROOM) or usage.above(FULL):
            continue
        yield Finding(
            status=Status.FIRED,
            cause="decode-kv-exhaustion",
            scopes=(ctx.scope(unit),),
            # One gauge, so one vote, together with decode/kv-exhaustion.
            for_=(
                ctx.saw("kv_cache_usage", unit, usage, 1 - HEADROOM, basis="physics", ratio=WEAK, group="full"),
                *_fills(ctx, unit),
            ),
            verdict=Verdict.OVERLOAD,
            next=(
                f"keep {HEADROOM:.0%} free: add decode workers or admit less before a burst or longer outputs fill the rest",
                "compare prompt and output lengths with an hour ago: which of them takes the room?",
            ),
            runbooks=("scale-out-decode", "itl-decode-relief"),
            do_not=(DoNot(action="scale-out-prefill", why="more prefill sends decode more KV than it has room for"),),
            cap=CAP,
        )


def _fills(ctx: Context, unit: str) -> tuple[Weighed, ...]:
    now, before = ctx.ask.level(unit, "kv_cache_usage"), past.level(ctx, unit, "kv_cache_usage")
    if before is None or not now.above(before + GREW):
        return ()
    return (ctx.saw("kv_cache_usage", unit, now, before, basis="history", ratio=MODERATE, group="full"),)
