"""How much of what was looked up was found again, and whether the shared store answers; used by the store's checks."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from pdops.diagnose.context import Context
from pdops.model.cluster import Role, Worker
from pdops.model.frame import EventKind
from pdops.model.series import Reading, Window
from pdops.model.view import Presence

FELL = 0.5
"""Half of what it was: the cliff that the first symptom of the triage matrix looks for."""
WORK = 4 / 3
"""Tokens to compute, over those of before, from which prefill feels missing hits: of a good share little has to go for that."""
WORTH = 0.1
"""A share of hits below this saves too little to be missed."""
_MIN_LOOKED_UP = 100.0
"""Tokens looked up in a window below which a share says nothing."""
_MIN_PROMPTS = 20.0
"""Prompts in a window below which one or two of another kind make the share."""

_SPREAD = 2.0
"""Variance of a share of tokens over that of a share of prompts, where lengths spread as much as their mean."""
_CHANCE = 3.0
"""Standard deviations that a share may lie below what is usual by chance, over many windows."""

LOCAL = ("prefix_cache_hits", "prefix_cache_queries")
STORED = ("external_cache_hits", "external_cache_queries")


@dataclass(frozen=True, slots=True)
class Share:
    """Hits over lookups (tokens, 0-1) of one prefill unit, now and before; `prompts` came now, None when nobody counts."""

    unit: str
    signal: str
    now: Reading
    before: float | None
    prompts: float | None = None

    @property
    def fell(self) -> bool:
        """Whether a share worth having is now half of what it was, or less, and not because so few prompts came."""
        return self.before is not None and self._below(FELL * self.before)

    @property
    def dearer(self) -> bool:
        """Whether a third more has to be computed than before for want of hits, and not because so few prompts came."""
        return self.before is not None and self._below(1.0 - WORK * (1.0 - self.before))

    def _below(self, least: float) -> bool:
        if self.before is None or self.before < WORTH:
            return False
        if self.prompts:
            least = min(least, self.before - _CHANCE * sqrt(_SPREAD * self.before * (1 - self.before) / self.prompts))
        return self.now.below(least)

    @property
    def held(self) -> bool:
        """Whether a share worth having is still there."""
        return self.now.above(WORTH) and (self.before is None or self.now.above(0.9 * self.before))


def shares(ctx: Context, pair: tuple[str, str]) -> tuple[Share, ...]:
    """Return the shares of `LOCAL` or `STORED` that are known now.

    Only prefill is asked: on a decode worker the same counters also hold what prefill handed over.
    """
    found = []
    for unit in ctx.units(Role.PREFILL):
        now = _share(ctx, unit, pair, None)
        if now.known:
            before = _share(ctx, unit, pair, ctx.view.base).value if ctx.view.base is not None else None
            found.append(Share(unit, pair[0], now, before, _prompts(ctx, unit, None)))
    return tuple(found)


def _share(ctx: Context, unit: str, pair: tuple[str, str], window: Window | None) -> Reading:
    prompts = _prompts(ctx, unit, window)
    if prompts is not None and prompts < _MIN_PROMPTS:
        return Reading(None, why=f"fewer than {_MIN_PROMPTS:.0f} prompts came")
    looked_up = ctx.ask.increase(unit, pair[1], window)
    if looked_up.value is not None and looked_up.value < _MIN_LOOKED_UP:
        return Reading(None, why=f"fewer than {_MIN_LOOKED_UP:.0f} tokens were looked up")
    return ctx.ask.ratio(unit, *pair, window)


def _prompts(ctx: Context, unit: str, window: Window | None) -> float | None:
    counted = (ctx.ask.increase(unit, s, window).value for s in ("prompt_length", "request_success"))
    return next((n for n in counted if n is not None), None)


def stores(ctx: Context) -> tuple[Worker, ...]:
    """Return the workers of the shared store."""
    return ctx.cluster.of_role(Role.KVSTORE)


def store_keys(ctx: Context) -> tuple[str, ...]:
    """Return the scopes under which something about the store may be found: its workers, else its pools."""
    return tuple(w.id for w in stores(ctx)) or ctx.pools(Role.KVSTORE)


def went_down(ctx: Context, worker: str) -> bool:
    """Whether a store worker is away, or the last word about it is that it went down."""
    if ctx.health(worker).presence is Presence.DOWN:
        return True
    events = ctx.events((EventKind.DOWN, EventKind.RESTART), worker=worker)
    return bool(events) and events[0].kind is EventKind.DOWN and ctx.health(worker).presence is not Presence.UP


def store_up(ctx: Context) -> bool | None:
    """Return whether every part of the store is known to answer; None when nobody says."""
    known: list[bool] = []
    for key in store_keys(ctx):
        if went_down(ctx, key):
            return False
        up = ctx.ask.last(key, "kvstore_up")
        if up.value is not None:
            known.append(up.value >= 0.5)
    return all(known) if known else None
