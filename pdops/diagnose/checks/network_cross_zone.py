"""The slow pairs are the ones that cross zones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pdops.diagnose.context import Context
from pdops.diagnose.finding import (
    DECISIVE,
    MODERATE,
    STRONG,
    CheckMeta,
    Finding,
    Status,
    Tier,
    Weighed,
    clear,
    not_known,
)
from pdops.diagnose.symptoms import picture
from pdops.history.readings import BANDWIDTH
from pdops.model.cluster import Pair
from pdops.model.report import DoNot, Symptom
from pdops.model.series import Reading, Window
from pdops.stats.robust import median

META = CheckMeta(
    id="network/cross-zone",
    title="KV crosses zones, and those pairs are slow",
    causes=("cross-zone",),
    needs=("kv_transfer_bandwidth", "kv_transfer_seconds", "handoff_seconds"),
    tier=Tier.PAIR,
    explains=(
        "transport-slow",
        "transport-fallback-slow",
        "decode-slow-worker",
        "decode-kv-exhaustion",
        "prefill-undersized",
        "router-imbalance",
        "output-inflation",
    ),
    no_alert="zones are configuration, and metrics do not carry them; the slow pairs show in PDKvTransferSlow",
)

MOST = 0.5
"""Share of the pairs across zones that must be slow: one slow pair among them is that pair's own trouble."""
SLOW = 0.5
"""Below half of the pairs inside one zone a pair is slow (the same half as for any link)."""
UNFELT = 0.05
"""Share of the promised TTFT below which what a zone costs is not felt, while the promise is kept."""
Signal = Literal["kv_transfer_bandwidth", "kv_transfer_seconds", "handoff_seconds"]


@dataclass(frozen=True, slots=True)
class _Sides:
    """Pairs inside one zone and across two, with a number each; `speed` is that of a pair over the typical inside one.

    `former` says that the typical one is of before, since no pair inside a zone is used any more.
    """

    signal: Signal
    inside: dict[Pair, Reading]
    across: dict[Pair, Reading]
    typical: float
    former: bool = False

    def speed(self, pair: Pair) -> float:
        value = (self.inside | self.across)[pair].value or 0.0
        if self.signal == "kv_transfer_bandwidth":
            return value / self.typical
        return self.typical / value if value > 0 else 1.0


def check(ctx: Context) -> Iterator[Finding]:
    """Set pairs across zones beside pairs inside one."""
    sides = _sides(ctx)
    if isinstance(sides, Finding):
        yield sides
        return
    if sides is None:
        return
    slow = [p for p in sides.across if sides.speed(p) < SLOW]
    if not slow:
        worst = min(sides.across, key=sides.speed)
        yield clear("cross-zone", f"{worst} runs at {sides.speed(worst):.2f} of pairs inside one zone")
        return
    if len(slow) <= MOST * len(sides.across) or len(slow) < min(2, len(_crossing(ctx))):
        yield clear("cross-zone", f"only {len(slow)} of {len(sides.across)} pairs across zones are slow")
        return
    slow_inside = [p for p in sides.inside if sides.speed(p) < SLOW]
    against = tuple(
        ctx.saw(sides.signal, p.key, sides.inside[p], sides.typical, basis="peer", ratio=STRONG, group="inside")
        for p in slow_inside
    )
    basis: Literal["history", "peer"] = "history" if sides.former else "peer"
    for_ = [
        ctx.saw(sides.signal, p.key, sides.across[p], sides.typical, basis=basis, ratio=STRONG, group="slow")
        for p in slow
    ]
    if sides.former:
        seen, usual = "every hand-off crosses", "some stay in their zone"
        for_.append(ctx.saw(sides.signal, None, seen, usual, basis="history", ratio=MODERATE, group="crossing"))
    for_ += [
        ctx.saw("zone", p.key, _zones(ctx, p), "one zone", basis="config", ratio=MODERATE, group="zones") for p in slow
    ]
    yield Finding(
        status=Status.FIRED,
        cause="cross-zone",
        scopes=tuple(ctx.scope(p.key) for p in slow),
        for_=tuple(for_),
        against=(*against, *_unfelt(ctx, sides, slow)),
        symptoms=(Symptom.TTFT,),
        next=(
            "let the router pair prefill and decode of one zone first, and cross only when a zone has no room",
            "if KV must cross, promise a longer TTFT there and let transfers run over several paths",
        ),
        runbooks=("routing-rebalance",),
        do_not=(
            DoNot(action="scale-out-prefill", why="the time is lost between zones; place prefill beside decode first"),
            DoNot(action="shorten-timeout", why="transfers between zones legitimately take longer"),
        ),
    )


def _unfelt(ctx: Context, sides: _Sides, slow: list[Pair]) -> tuple[Weighed, ...]:
    """Return that crossing takes so little of what was promised that no client can feel it."""
    promised = ctx.slo.ttft_s
    if promised is None or sides.signal == "kv_transfer_bandwidth" or picture(ctx).ttft_high:
        return ()
    worst = max(slow, key=lambda p: sides.across[p].value or 0.0)
    if (sides.across[worst].value or 0.0) - sides.typical >= UNFELT * promised:
        return ()
    most = sides.typical + UNFELT * promised
    return (
        ctx.saw(sides.signal, worst.key, sides.across[worst], most, basis="physics", ratio=DECISIVE, group="little"),
    )


def _crossing(ctx: Context) -> list[Pair]:
    """Return the pairs across zones that have data of their own, now or before."""
    return [p for p in ctx.pairs if None not in (z := _zone_pair(ctx, p)) and z[0] != z[1]]


def _sides(ctx: Context) -> _Sides | Finding | None:
    for signal in ("kv_transfer_bandwidth", "kv_transfer_seconds", "handoff_seconds"):
        told = ctx.pairs_with(*(BANDWIDTH if signal == "kv_transfer_bandwidth" else (signal,)))
        found = {p: r for p in told if (r := _ask(ctx, p, signal)).known}
        zones = {p: _zone_pair(ctx, p) for p in found}
        across = {p: r for p, r in found.items() if None not in zones[p] and zones[p][0] != zones[p][1]}
        inside = {p: r for p, r in found.items() if None not in zones[p] and zones[p][0] == zones[p][1]}
        if not across:
            continue
        typical = median([r.value for r in inside.values() if r.value is not None])
        if typical:
            return _Sides(signal, inside, across, typical)
        typical = median(_former(ctx, signal))
        if typical and 2 * len(across) >= len(_crossing(ctx)):
            return _Sides(signal, {}, across, typical, former=True)
        why = "every pair that moves KV crosses zones, so there is none inside one to compare with"
        return not_known("cross-zone", signal, why, "set links.baseline_bytes_per_s, or measure one pair inside a zone")
    return None


def _former(ctx: Context, signal: Signal) -> list[float]:
    """Return what pairs inside one zone had before."""
    if ctx.view.base is None:
        return []
    inside = [p for p in ctx.pairs if None not in (z := _zone_pair(ctx, p)) and z[0] == z[1]]
    return [v for p in inside if (v := _ask(ctx, p, signal, ctx.view.base).value) is not None]


def _ask(ctx: Context, pair: Pair, signal: Signal, window: Window | None = None) -> Reading:
    if signal == "kv_transfer_bandwidth":
        return ctx.ask.bandwidth(pair.key, window)
    return ctx.ask.mean(pair.key, signal, window)


def _zone_pair(ctx: Context, pair: Pair) -> tuple[str | None, str | None]:
    src, dst = ctx.cluster.get(pair.src), ctx.cluster.get(pair.dst)
    return (src.zone if src else None, dst.zone if dst else None)


def _zones(ctx: Context, pair: Pair) -> str:
    src, dst = _zone_pair(ctx, pair)
    return f"{src} to {dst}"
