"""Clocks of prefill and decode hosts differ, so that times taken on both cannot be subtracted."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.hosts import FIX_HOST, NO_PAIR, same_host, split
from pdops.diagnose.preflight import NO_ALERT, Seen, agrees, amount, engines, not_applicable, unread, warn

META = CheckMeta(
    id="host/clock",
    title="Clocks of prefill and decode hosts agree",
    causes=("observability",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

CAUSE = "observability"
FACT = "host.clock_offset_s"
MOST_S = 0.1
"""Seconds two hosts may differ by: spans and logs of one hand-off, which takes tens of milliseconds, still sort right.
Leases do not hang on it: vLLM 0.32.0 measures its peer's monotonic clock in the handshake."""


def check(ctx: Context) -> Iterator[Finding]:
    """Compare the clocks of the ends of every pair."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable(CAUSE, NO_PAIR)
        return
    told, _ = split([w.id for w in workers], lambda name: amount(ctx, name, FACT))
    good: list[float] = []
    apart: list[str] = []
    lost: list[str] = []
    together = 0
    for pair in ctx.cluster.pairs():
        ends = (pair.src, pair.dst)
        if same_host(ctx, *ends):
            together += 1
        elif all(end in told for end in ends):
            gap = abs(told[pair.src] - told[pair.dst])
            if gap > MOST_S:
                apart += ends
            else:
                good.append(gap)
        else:
            lost += [end for end in ends if end not in told]
    if apart:
        yield warn(
            CAUSE,
            [Seen(end, FACT, told[end], "s") for end in dict.fromkeys(apart)],
            f"within {MOST_S * 1000:.0f} ms of each other",
            "let chrony or systemd-timesyncd run on both hosts, with one source, and wait until `chronyc tracking` settles",
        )
    if lost:
        yield unread(CAUSE, dict.fromkeys(lost), FACT, "the clock of its host was not compared", FIX_HOST)
    if good:
        yield agrees(CAUSE, f"clocks differ by at most {max(good) * 1000:.0f} ms")
    if together and not good:
        yield agrees(CAUSE, f"{together} pair{'s' if together > 1 else ''} on one host, with one clock")
