"""Evidence that is not one check's own: the load, the laws and the shapes vote on every cause they bear on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pdops.diagnose.conditioned import Shift, shifts
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, WEAK, CheckMeta, Finding, Status, Weighed
from pdops.diagnose.load import GREW, crowd
from pdops.diagnose.physics import Law, LawState, laws
from pdops.model.cluster import Role
from pdops.model.series import Reading
from pdops.stats.shapes import Move, difference

Answer = tuple[CheckMeta, Finding]


@dataclass(frozen=True, slots=True)
class Vote:
    """One piece of evidence, and the causes it speaks for and against."""

    seen: Weighed
    for_: frozenset[str]
    against: frozenset[str]


_NONE: frozenset[str] = frozenset()
_SLOW_PREFILL = frozenset({"prefill-slow-worker", "gpu-throttle", "chunked-prefill-misconfig"})
_SLOW_DECODE = frozenset({"decode-slow-worker", "gpu-throttle"})
_SLOW_LINK = frozenset({"transport-slow", "transport-fallback-slow", "network-degraded", "network-saturated"})
_HANGS = frozenset({"no-timeout-hang", "backpressure-deadlock", "collective-deadlock"})


@dataclass(frozen=True, slots=True)
class _Bearing:
    """Causes that a latency speaks for when its load does not explain it, and when it does.

    The groups are those in which the checks' own evidence says the same: together they have one vote.
    """

    slow: frozenset[str]
    slow_group: str
    loaded: frozenset[str]
    loaded_group: str
    ratio: float


_BY_SIGNAL = {
    "prefill_seconds": _Bearing(_SLOW_PREFILL, "slow", frozenset({"workload-shift"}), "length", MODERATE),
    "itl_seconds": _Bearing(
        _SLOW_DECODE, "slow", frozenset({"decode-undersized", "output-inflation"}), "batch", MODERATE
    ),
    # Bandwidth, which the checks weigh, says nearly the same.
    "kv_transfer_seconds": _Bearing(_SLOW_LINK, "time", frozenset({"workload-shift"}), "length", WEAK),
}


def corroborate(ctx: Context, answers: Sequence[Answer]) -> list[Answer]:
    """Add to every finding that fired what the load, the laws and the shapes say of its cause."""
    fired = {f.cause for _, f in answers if f.status is Status.FIRED}
    if not fired:
        return list(answers)
    votes = [v for v in (*_loads(ctx), *_laws(ctx), *_shapes(ctx)) if (v.for_ | v.against) & fired]
    return [(meta, _with(finding, votes)) for meta, finding in answers]


def _with(finding: Finding, votes: Iterable[Vote]) -> Finding:
    if finding.status is not Status.FIRED:
        return finding
    more = tuple(v.seen for v in votes if finding.cause in v.for_)
    less = tuple(v.seen for v in votes if finding.cause in v.against)
    return replace(finding, for_=finding.for_ + more, against=finding.against + less) if more or less else finding


def _loads(ctx: Context) -> Iterator[Vote]:
    for shift in shifts(ctx):
        bearing = _BY_SIGNAL.get(shift.signal)
        if bearing is None:
            continue
        if shift.unexplained:
            seen = _moved(ctx, shift, shift.expected, bearing.ratio, bearing.slow_group)
            yield Vote(seen, bearing.slow, bearing.loaded if shift.within and not _crowded(ctx, shift) else _NONE)
        elif shift.explained:
            seen = _moved(ctx, shift, shift.before, bearing.ratio, bearing.loaded_group)
            yield Vote(seen, bearing.loaded, bearing.slow)


def _crowded(ctx: Context, shift: Shift) -> bool:
    """Whether prompts share steps with more others than before, which lengthens their time whatever their own length."""
    if shift.signal != "prefill_seconds" or ctx.view.base is None:
        return False
    return crowd(ctx, shift.scope) > GREW * crowd(ctx, shift.scope, ctx.view.base)


def _moved(ctx: Context, shift: Shift, expected: float, ratio: float, group: str) -> Weighed:
    signal = f"{shift.signal}.mean"
    return ctx.saw(signal, shift.scope, shift.now, expected, basis="history", ratio=ratio, group=group)


def _laws(ctx: Context) -> Iterator[Vote]:
    for law in laws(ctx):
        if law.name == "little" and law.state is LawState.ABOVE:
            yield Vote(_law(ctx, law, MODERATE), _HANGS, _NONE)
        elif law.name == "little" and law.state is LawState.HOLDS:
            yield Vote(_law(ctx, law, WEAK), _NONE, _HANGS)
        elif law.name == "ttft-outside" and law.state is LawState.ABOVE:
            yield Vote(_law(ctx, law, MODERATE, "legs"), frozenset({"router-fault"}), _NONE)
        elif law.name == "ttft-outside" and law.state is LawState.HOLDS:
            yield Vote(_law(ctx, law, MODERATE, "legs"), _NONE, frozenset({"router-fault"}))
        elif law.name == "tokens-bytes" and law.state is LawState.ABOVE:
            yield Vote(_law(ctx, law, WEAK), frozenset({"transport-error", "config-asymmetry"}), _NONE)
        elif law.name == "counts" and law.state is LawState.BELOW:
            yield Vote(_law(ctx, law, WEAK), frozenset({"router-fault", "keepalive-mismatch"}), _NONE)


def _law(ctx: Context, law: Law, ratio: float, group: str | None = None) -> Weighed:
    scope = law.scope or None
    return ctx.saw(law.signal, scope, law.left, law.right, basis="physics", ratio=ratio, group=group or law.name)


def _shapes(ctx: Context) -> Iterator[Vote]:
    """Tell a pool whose every request is slower from one in which a part of them is."""
    base = ctx.view.base
    if base is None:
        return
    for role, signal, single in (
        (Role.DECODE, "itl_seconds", frozenset({"decode-slow-worker", "mixed-length-jitter"})),
        (Role.PREFILL, "prefill_seconds", frozenset({"prefill-slow-worker"})),
    ):
        for pool in ctx.pools(role):
            now, before = ctx.ask.events(pool, signal), ctx.ask.events(pool, signal, base)
            if isinstance(now, Reading) or isinstance(before, Reading) or now.counts is None or before.counts is None:
                continue
            if not np.array_equal(now.bounds, before.bounds):
                continue
            moved = difference(now.counts, before.counts)
            if moved is not None and moved.move is Move.SPLIT:
                text = f"{moved.up:.0%} stand apart"
                seen = ctx.saw(signal, pool, text, "one group", basis="history", ratio=WEAK, group="shape")
                yield Vote(seen, single, _NONE)
