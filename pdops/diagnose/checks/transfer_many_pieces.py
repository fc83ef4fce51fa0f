"""KV is moved in many more pieces than before: the two sides lay it out differently."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose import past
from pdops.diagnose.context import Comparison, Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.model.cluster import Role
from pdops.model.report import DoNot, Symptom

META = CheckMeta(
    id="transfer/many-pieces",
    title="KV is moved in many more pieces than its bytes ask for",
    causes=("config-asymmetry",),
    needs=("kv_transfer_post_seconds", "kv_transfer_seconds", "kv_transfer_bytes"),
    tier=Tier.PAIR,
    explains=(
        "transport-slow",
        "transport-fallback-slow",
        "cross-zone",
        "decode-kv-exhaustion",
        "decode-undersized",
        "prefill-undersized",
        "backpressure-to-prefill",
        "router-imbalance",
        "output-inflation",
    ),
    no_alert="the time to post a transfer has no promise; the slow transfers show in PDKvTransferSlow",
)

JUMP = 4.0
"""Posting a transfer costs a fixed time for each piece. Blocks split by heads for another tensor-parallel size or layout
make as many more pieces as heads or ranks, at least a few; longer prompts make more bytes in the same measure."""
SLOWER = 2.0
"""Transfers this many times as long as before feel it."""
FELT = 0.05
"""Share of the promised TTFT below which nobody does."""


def check(ctx: Context) -> Iterator[Finding]:
    """Set the time to post a transfer beside peers or history, by the bytes of a transfer."""
    for_: list[Weighed] = []
    known = False
    compared = ctx.compare(lambda s, w: ctx.ask.mean(s, "kv_transfer_post_seconds", w), Role.DECODE)
    for unit, found in compared.items():
        known = known or found.ratio is not None
        if found.ratio is None or found.ratio < JUMP * max(1.0, _larger(ctx, unit)):
            continue
        slow = _slower(ctx, unit)
        if slow is not None:
            for_ += [_posted(ctx, unit, found), slow]
    if not for_:
        if known:
            yield clear("config-asymmetry", "posting a transfer takes no longer than its bytes ask for")
        return
    yield Finding(
        status=Status.FIRED,
        cause="config-asymmetry",
        scopes=tuple(dict.fromkeys(w.evidence.scope for w in for_ if w.evidence.scope)),
        for_=tuple(for_),
        symptoms=(Symptom.TTFT,),
        next=(
            "compare KV layout, block size and tensor-parallel size of both sides: what differs splits every block",
            "read the number of descriptors of a transfer from the connector's metrics and divide it by its blocks",
            "if both sides agree, look at the processor of that worker: posting is its work, not the network's",
        ),
        do_not=(
            DoNot(
                action="scale-out-prefill",
                why="transfers are slow by their pieces, which more prefill does not make fewer",
            ),
        ),
    )


def _posted(ctx: Context, unit: str, found: Comparison) -> Weighed:
    signal = "kv_transfer_post_seconds.mean"
    return ctx.saw(signal, unit, found.now, found.expected, basis=found.basis, ratio=STRONG, group="post")


def _larger(ctx: Context, unit: str) -> float:
    """Return how many times its former size a transfer is; 1 where that is not known."""
    sizes = []
    for window in (ctx.view.now, ctx.view.base):
        moved = ctx.ask.increase(unit, "kv_transfer_bytes", window).value
        ended = ctx.ask.increase(unit, "kv_transfer_seconds", window).value
        sizes.append(moved / ended if moved and ended else None)
    now, before = sizes
    return now / before if now and before else 1.0


def _slower(ctx: Context, unit: str) -> Weighed | None:
    now, before = ctx.ask.mean(unit, "kv_transfer_seconds"), past.mean(ctx, unit, "kv_transfer_seconds")
    promised = ctx.slo.ttft_s
    if before is None or not now.above(SLOWER * before) or (promised is not None and not now.above(FELT * promised)):
        return None
    return ctx.saw("kv_transfer_seconds.mean", unit, now, before, basis="history", ratio=MODERATE, group="time")
