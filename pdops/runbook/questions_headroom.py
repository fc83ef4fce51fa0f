"""The question whether prefill has room for the work that a cache saves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from pdops.history.readings import Readings
from pdops.model.cluster import Role, pool_key
from pdops.model.series import Window
from pdops.model.view import Presence, View
from pdops.runbook.gates import Facts, Said, failed, passed, unsure
from pdops.runbook.questions_signal import carriers
from pdops.sources.validate import Strict

BEFORE_S = 60.0
"""The least of the time before a store went away that says what prefill computes."""


class PrefillHeadroom(Strict):
    """Share (0-1) of its time that prefill may be busy when no prompt hits the cache."""

    most_ratio: Annotated[float, Field(gt=0, le=1)] = 0.9


def prefill_headroom(facts: Facts, asked: PrefillHeadroom) -> Said:
    """Judge by the time that a computed prompt token costs and the prompt tokens that come.

    With hit ratio h, prefill that was busy u while r tokens/s came spends u / (r (1 - h)) on each, and without a cache
    every token is computed. What waits for a store counts as busy, so a time in which a store did not answer is left out
    for the cost, and of two times the cheaper is nearer to what is computed; of what comes the greater counts. Requests
    computed together count twice in u, which errs on the side of caution.
    """
    view, ask = facts.view, Readings(facts.view)
    pools = view.cluster.pools(Role.PREFILL)
    if not pools:
        return unsure("no prefill pool is known")
    windows = _undisturbed(view)
    if not windows:
        why = "a store does not answer, and prefill was watched for less than a minute before"
        return unsure(f"{why}: what it computes cannot be told from what it waits")
    worst, told = 0.0, ""
    for pool in pools:
        key = pool_key(pool)
        workers = len(carriers(facts, view.cluster.of_pool(pool)))
        if workers == 0:
            return failed(f"nobody of {key} is in use", "there is no prefill that could compute more")
        costs = [_cost(ask, key, window) for window in windows]
        known = [c for c in costs if not isinstance(c, str)]
        if not known:
            return unsure("; ".join(dict.fromkeys(c for c in costs if isinstance(c, str))))
        coming = ask.rate(key, "prompt_tokens")
        if coming.value is None:
            return unsure(coming.why or f"prompt_tokens of {key} is not known")
        if coming.missing:
            return unsure(f"prompt_tokens is not known of {', '.join(coming.missing)}")
        cost = min(known, key=lambda c: c.token_s)
        without = cost.token_s * max(coming.value, *(c.tokens_per_s for c in known)) / workers
        if without >= worst:
            busy = cost.token_s * cost.tokens_per_s * (1.0 - cost.hit) / workers
            worst, told = without, f"busy {busy:.0%} at a hit rate of {cost.hit:.0%}, without it {without:.0%}"
    if worst <= asked.most_ratio:
        return passed(told)
    return failed(told, f"above {asked.most_ratio:.0%} a cold cache overloads prefill; scale it out first")


@dataclass(frozen=True, slots=True)
class _Cost:
    """Seconds of prefill per computed token, prompt tokens/s that came, and the share of them that a cache gave."""

    token_s: float
    tokens_per_s: float
    hit: float


def _undisturbed(view: View) -> tuple[Window, ...]:
    """Return the windows in which every store answered, the judged one and that before; none when it was too short."""
    away = [
        view.start_s if health.since_s is None else health.since_s
        for w in view.cluster.of_role(Role.KVSTORE)
        if (health := view.health.get(w.id)) is not None and health.presence not in (Presence.UP, Presence.GIVEN)
    ]
    if not away:
        return tuple(w for w in (view.base, view.now) if w is not None)
    before = Window(view.start_s, min(away))
    return (before,) if before.span_s >= BEFORE_S else ()


def _cost(ask: Readings, key: str, window: Window) -> _Cost | str:
    """Return what prefill of a pool costs in a window, or why that is not known."""
    rate, mean = ask.rate(key, "prefill_seconds", window), ask.mean(key, "prefill_seconds", window)
    tokens = ask.rate(key, "prompt_tokens", window)
    for name, reading in (("prefill_seconds", rate), ("prefill_seconds", mean), ("prompt_tokens", tokens)):
        if reading.value is None:
            return reading.why or f"{name} of {key} is not known"
        if reading.missing:
            return f"{name} is not known of {', '.join(sorted(reading.missing))}"
    assert rate.value is not None
    assert mean.value is not None
    assert tokens.value is not None
    hit = _hits(ask, key, window)
    if hit is None:
        return f"the hit rate of {key} is not known"
    if tokens.value <= 0:
        return f"no prompt came to {key}"
    hit = min(hit, 0.99)
    return _Cost(rate.value * mean.value / (tokens.value * (1.0 - hit)), tokens.value, hit)


def _hits(ask: Readings, key: str, window: Window) -> float | None:
    """Return the share of prompt tokens that a cache gave, own or shared.

    None when one of them is not known: it may be all of them. Where no store is there nothing need tell of one.
    """
    own, shared = (_share(ask, key, kind, window) for kind in ("prefix", "external"))
    if shared is None and not ask.view.cluster.of_role(Role.KVSTORE):
        shared = 0.0
    return None if own is None or shared is None else 1.0 - (1.0 - own) * (1.0 - shared)


def _share(ask: Readings, key: str, kind: str, window: Window) -> float | None:
    asked = ask.increase(key, f"{kind}_cache_queries", window)
    if asked.value == 0 and not asked.missing:
        return 0.0
    share = ask.ratio(key, f"{kind}_cache_hits", f"{kind}_cache_queries", window).value
    return None if share is None else min(1.0, max(0.0, share))
