"""How much work comes, who gets it and how full the pools are; shared by the checks of router, capacity and client."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, Weighed
from pdops.model.cluster import CLIENT, POOL_PREFIX, Role
from pdops.model.frame import EventKind
from pdops.model.series import Reading, Series, Window, unknown
from pdops.stats.robust import skew

LENGTH = "length"
"""The group of evidence that requests are longer than they were."""
MOVED = "moved"
"""The group of evidence that workers went from one pool to another."""
GREW = 1.5
"""Half as much again is more than the ebb and flow of a steady load."""
STEADY = 0.2
"""Arrivals within this share of what they were are a steady load."""
WAITING = 2.0
"""Requests that wait per worker above which a pool is short, and not only between two steps."""
_TAIL = 0.02
"""Share of prompts that the tail of before holds at most."""
_FATTER = 0.02
"""Share of prompts by which that tail grew above which it is another mix: at least twice what it held."""
_CHANCE = 4.0
"""Standard deviations (Poisson) that a count in the tail may lie above what was usual by chance, over many windows."""
_MIN_PROMPTS = 40
"""Prompts in a window below which a tail is chance."""
_BEGUN = ("prefill_seconds", "queue_seconds", "ttft_seconds", "e2e_seconds", "request_success")
"""What a prefill worker counts once for each request."""
_MIN_REQUESTS = 20.0
"""Requests per worker in a window below which an uneven split may be chance: of eight workers with 20 each on average one
has 36 or more by chance in less than one window of a hundred (Poisson)."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Work that comes, per second, now and before."""

    scope: str
    signal: str
    now: Reading
    before: float

    @property
    def grew(self) -> bool:
        """Whether half as much again comes as before."""
        return self.before > 0 and self.now.above(GREW * self.before)

    @property
    def steady(self) -> bool:
        """Whether as much comes as before; nothing at all, before and now, is steady too."""
        now = self.now.value or 0.0
        return abs(now - self.before) <= STEADY * self.before


def arrivals(ctx: Context) -> Arrivals | None:
    """Return prompt tokens of prefill, else finished requests at clients; None when neither is known now and before.

    Prompt tokens come first: they are counted before decode, so a goodput that falls there does not look like less work.
    """
    places = [*((pool, "prompt_tokens") for pool in ctx.pools(Role.PREFILL)), (CLIENT, "request_success")]
    for scope, signal in places:
        now = ctx.ask.rate(scope, signal)
        before = past.rate(ctx, scope, signal)
        if now.known and before is not None:
            return Arrivals(scope, signal, now, before)
    return None


@dataclass(frozen=True, slots=True)
class Split:
    """What each worker of a pool gets or holds; `skew` is the greatest over the mean, 1 when even."""

    signal: str
    by_worker: dict[str, float]
    skew: float

    @property
    def hottest(self) -> str:
        """The worker that gets most."""
        return max(sorted(self.by_worker), key=lambda w: self.by_worker[w])

    @property
    def mean(self) -> float:
        """The mean over the workers."""
        return sum(self.by_worker.values()) / len(self.by_worker)

    @property
    def idle(self) -> tuple[str, ...]:
        """Workers that get less than half of the mean."""
        return tuple(w for w, v in sorted(self.by_worker.items()) if v < self.mean / 2)


def members(ctx: Context, role: Role) -> tuple[tuple[str, ...], ...]:
    """Return, for each pool of a role, its settled workers that have data; pools with fewer than two are left out."""
    groups = (
        tuple(w.id for w in ctx.cluster.of_pool(p) if ctx.has_data(w.id) and ctx.settled(w.id))
        for p in ctx.cluster.pools(role)
    )
    return tuple(g for g in groups if len(g) >= 2)


def traffic(ctx: Context, workers: tuple[str, ...]) -> Split | None:
    """Return what workers get, per second: as the router counts it, else what they finish, else the tokens they make.

    None when no signal is known for all of them, or too few requests came to tell.
    """
    told = False
    for signal in ("worker_selection", "request_success"):
        grown = [ctx.ask.increase(w, signal).value for w in workers]
        if None in grown:
            continue
        told = True
        if sum(v or 0.0 for v in grown) >= _MIN_REQUESTS * len(workers):
            return _split(signal, {w: ctx.ask.rate(w, signal).value or 0.0 for w in workers})
    few = ctx.ask.increase(CLIENT, "request_success").below(_MIN_REQUESTS * len(workers))
    if told or few:
        return None
    made = {w: ctx.ask.rate(w, "generated_tokens").value for w in workers}
    if all(v is not None for v in made.values()):
        return _split("generated_tokens", {w: v or 0.0 for w, v in made.items()})
    return None


def holding(ctx: Context, workers: tuple[str, ...], signal: str, least: float) -> Split | None:
    """Return a gauge over workers, or None when one does not give it or the mean is below `least`."""
    levels = {w: ctx.ask.level(w, signal).value for w in workers}
    if any(v is None for v in levels.values()):
        return None
    split = _split(signal, {w: v or 0.0 for w, v in levels.items()})
    return split if split is not None and split.mean >= least else None


def _split(signal: str, by_worker: dict[str, float]) -> Split | None:
    uneven = skew(list(by_worker.values()))
    return Split(signal, by_worker, uneven) if uneven is not None else None


def size(ctx: Context, unit: str) -> int:
    """Return how many workers a worker or pool key stands for, at least one."""
    if not unit.startswith(POOL_PREFIX):
        return 1
    return max(1, len(ctx.cluster.of_pool(unit.removeprefix(POOL_PREFIX))))


def crowd(ctx: Context, unit: str, window: Window | None = None) -> float:
    """Return how many requests share a worker's steps on the mean while it works, at least one."""
    window = window or ctx.view.now
    busy: list[float] = []
    for _, series in ctx.ask.parts(unit, "running_requests"):
        if isinstance(series, Series):
            inside = series.v[(series.t >= window.start_s) & (series.t <= window.end_s)]
            busy.extend(inside[inside > 0].tolist())
    return max(1.0, sum(busy) / len(busy) / size(ctx, unit)) if busy else 1.0


def average(ctx: Context, unit: str, signal: str, window: Window) -> Reading | None:
    """Return the mean over time, and over the workers of a pool, of a gauge in a whole window; None where it has no sample."""
    found: list[float] = []
    for _, series in ctx.ask.parts(unit, signal):
        if isinstance(series, Series):
            inside = (series.t >= window.start_s) & (series.t <= window.end_s)
            found.extend(float(v) for v in series.v[inside])
    return Reading(sum(found) / len(found), n=len(found)) if found else None


def prompt(ctx: Context, unit: str, window: Window | None = None) -> Reading:
    """Return the mean tokens of a prompt of a worker or pool.

    Where lengths are not told it is tokens over the requests that any histogram counts; of prefill else what decode, which
    gets the same prompts, tells of them.
    """
    told = _prompt(ctx, unit, window)
    if told.known or ctx.role_of(unit) is not Role.PREFILL:
        return told
    return next((r for p in ctx.pools(Role.DECODE) if (r := _prompt(ctx, p, window)).known), told)


def _prompt(ctx: Context, unit: str, window: Window | None) -> Reading:
    told = ctx.ask.mean(unit, "prompt_length", window)
    tokens = ctx.ask.increase(unit, "prompt_tokens", window)
    if told.known or tokens.value is None or tokens.missing:
        return told
    counts = (ctx.ask.increase(unit, signal, window) for signal in _BEGUN)
    count = next((c for c in counts if c.value and not c.missing), None)
    return told if count is None or not count.value else Reading(tokens.value / count.value, n=int(count.value))


def waiting(ctx: Context, unit: str, window: Window | None = None) -> tuple[str, Reading]:
    """Return how many requests wait at a worker or pool, and the signal that tells.

    Where the gauge is not given those that wait for capacity are, and by Little's law the time waited per second. Every
    window is read by the signal that tells of the judged one: two signals cannot be compared.
    """
    for signal in ("queue_depth", "queue_depth_capacity"):
        if ctx.ask.level(unit, signal).known:
            return signal, ctx.ask.level(unit, signal, window)
    if not _waited(ctx, unit, None).known:
        return "queue_depth", ctx.ask.level(unit, "queue_depth", window)
    return "queue_seconds per second", _waited(ctx, unit, window)


def _waited(ctx: Context, unit: str, window: Window | None) -> Reading:
    rate, mean = ctx.ask.rate(unit, "queue_seconds", window), ctx.ask.mean(unit, "queue_seconds", window)
    if rate.value is None or mean.value is None or mean.missing:
        return unknown("how long requests waited is not known", mean.missing)
    return Reading(rate.value * mean.value, n=mean.n)


def more(ctx: Context) -> tuple[Weighed, ...]:
    """Return that half as many requests again come as before.

    Requests are counted where they end well or are begun. Tokens count only as far as longer prompts do not explain them.
    """
    # What workers that have left took is no longer in their pool's past.
    pools = (
        ()
        if ctx.events((EventKind.SCALE_IN, EventKind.SCALE_OUT), ctx.view.at_s - ctx.view.start_s)
        else ctx.pools(Role.PREFILL)
    )
    places = [(CLIENT, "request_success"), *((pool, "prompt_length") for pool in pools)]
    for scope, signal in places:
        found = _grown(ctx, scope, signal, 1.0)
        if found:
            return found
    for pool in pools:
        now, before = prompt(ctx, pool), ctx.before(lambda s, w: prompt(ctx, s, w), pool)
        stretch = max(1.0, now.value / before) if now.value is not None and before else 1.0
        found = _grown(ctx, pool, "prompt_tokens", stretch)
        if found:
            return found
    return ()


def longer(ctx: Context) -> tuple[Weighed, ...]:
    """Return that prompts are half as long again as before on the mean, or that many more are as long as few were."""
    for pool in ctx.pools(Role.PREFILL):
        now, before = prompt(ctx, pool), ctx.before(lambda s, w: prompt(ctx, s, w), pool)
        if before is not None and before > 0 and now.above(GREW * before):
            return (ctx.saw("prompt_length.mean", pool, now, before, basis="history", ratio=MODERATE, group=LENGTH),)
        tail = _tail(ctx, pool)
        if tail is not None:
            edge, was, share = tail
            text = f"{share:.1%} of prompts are longer than {edge:.0f} tokens"
            return (ctx.saw("prompt_length", pool, text, f"{was:.1%}", basis="history", ratio=MODERATE, group=LENGTH),)
    return ()


def _grown(ctx: Context, scope: str, signal: str, stretch: float) -> tuple[Weighed, ...]:
    now = ctx.ask.rate(scope, signal)
    before = past.rate(ctx, scope, signal)
    if signal == "prompt_length" and now.value is not None:
        now = replace(now, value=now.value + _piling(ctx, scope))
    refused, former = ctx.ask.rate(CLIENT, "request_failure").value, past.rate(ctx, CLIENT, "request_failure")
    if scope == CLIENT and now.value is not None and before is not None and refused is not None and former is not None:
        # Those that are turned away came too; told of one time only, they would be growth that nobody saw.
        now, before = replace(now, value=now.value + refused), before + former
    if before is None or before <= 0 or not now.above(GREW * stretch * before):
        return ()
    return (ctx.saw(f"{signal}.rate", scope, now, before, basis="history", ratio=MODERATE, group="arrivals"),)


def _piling(ctx: Context, pool: str) -> float:
    """Return by how many requests a second a prefill pool's queue grows: they came, and are not begun."""
    grown = 0.0
    for _, series in ctx.ask.parts(pool, "queue_depth"):
        if isinstance(series, Series):
            inside = series.v[(series.t >= ctx.view.now.start_s) & (series.t <= ctx.view.now.end_s)]
            grown += float(inside[-1] - inside[0]) if len(inside) else 0.0
    return max(0.0, grown) / ctx.view.now.span_s


def _tail(ctx: Context, pool: str) -> tuple[float, float, float] | None:
    """Return (edge in tokens, share beyond it before, share now) where the tail of prompt lengths grew fat."""
    if ctx.view.base is None:
        return None
    now, before = (ctx.ask.events(pool, "prompt_length", w) for w in (None, ctx.view.base))
    if isinstance(now, Reading) or isinstance(before, Reading) or now.counts is None or before.counts is None:
        return None
    if not np.array_equal(now.bounds, before.bounds) or min(now.total, before.total) < _MIN_PROMPTS:
        return None
    was, share = 1.0 - before.counts / before.counts[-1], 1.0 - now.counts / now.counts[-1]
    thin = np.flatnonzero(was <= _TAIL)
    # The first edge that few prompts passed before.
    at = int(thin[0])
    usual = max(1.0, was[at] * now.total)
    chance = now.total * share[at] < usual + _CHANCE * usual**0.5
    if not np.isfinite(now.bounds[at]) or share[at] < was[at] + _FATTER or chance:
        return None
    return float(now.bounds[at]), float(was[at]), float(share[at])
