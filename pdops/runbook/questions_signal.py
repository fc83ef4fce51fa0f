"""Questions about signals: levels against numbers, drained workers, and room for what will come."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Literal

from pydantic import Field

from pdops.history.readings import FRESH_INTERVALS, FRESH_LEAST_S, Readings
from pdops.model.cluster import Role, Worker, pool_key
from pdops.model.series import Reading, Window
from pdops.model.view import View
from pdops.runbook.gates import Facts, Said, failed, passed, unsure
from pdops.runbook.questions_state import OfWorker
from pdops.runbook.world import World
from pdops.sources.validate import Strict

FULL = 0.9
"""KV usage above which a decode worker soon preempts: a step of growth of the running requests takes the rest."""
WAITING = 1.0
"""Requests that wait per prefill worker up to which a pool has room: one is between two steps."""
LEASE_MARGIN = 1.5
"""A lease is waited for this many times over: clocks and heartbeats of the two sides differ."""


class Signal(Strict):
    """A reading of a canonical signal beside a number in the signal's unit.

    `scope` is `client`, `router`, a worker, `pool:NAME` or a role, which is the greatest of its pools.
    """

    signal: str
    scope: str
    stat: Literal["level", "highest", "rate", "increase", "mean", "p95", "p99"] = "level"
    op: Literal["above", "below"]
    value: float


class Empty(OfWorker):
    """Nothing runs or waits for `lease_s` seconds and half of that more."""

    lease_s: Annotated[float, Field(ge=0, le=3600)]


class KvHeadroom(Strict):
    """Share (0-1) of KV blocks that must be free at the window's p99."""

    role: Literal[Role.PREFILL, Role.DECODE]
    least_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.3


def signal(facts: Facts, asked: Signal) -> Said:
    """Compare; a bound that does not settle it is unknown."""
    reading = _read(facts.view, asked)
    if reading.value is None:
        return unsure(reading.why or f"{asked.signal} is not known")
    seen = f"{asked.signal} {reading.value:.4g}"
    holds, not_ = (reading.above, reading.below) if asked.op == "above" else (reading.below, reading.above)
    if holds(asked.value):
        return passed(seen)
    if reading.bound is not None and not not_(asked.value):
        return unsure(f"{seen}: only a bound")
    return failed(seen, f"it must be {asked.op} {asked.value:g}")


def empty(facts: Facts, asked: Empty) -> Said:
    """Look for requests over the whole time a peer may still pull KV."""
    ask, view = Readings(facts.view), facts.view
    needed_s = max(asked.lease_s * LEASE_MARGIN, 2 * view.interval_s)
    if view.at_s - needed_s < view.start_s:
        return unsure(f"it is watched for {view.at_s - view.start_s:.0f} s, {needed_s:.0f} s are needed")
    window = Window(view.at_s - needed_s, view.at_s)
    # One look at the end says nothing of the time before it.
    looks = 2 if view.relative else max(2, int(needed_s / max(FRESH_INTERVALS * view.interval_s, FRESH_LEAST_S)))
    for name in ("running_requests", "queue_depth"):
        if not ask.fresh(asked.worker, name):
            return unsure(f"{asked.worker} gives no fresh {name}")
        most = ask.highest(asked.worker, name, 1.0, window)
        if most.value is None:
            return unsure(most.why or f"{name} of {asked.worker} is not known")
        if most.n < looks:
            return unsure(f"{name} was seen {most.n} times in {needed_s:.0f} s, {looks} are needed")
        if most.value > 0:
            return failed(f"{name} was {most.value:g} within {needed_s:.0f} s", f"{asked.worker} must be empty")
    return passed(f"empty for {needed_s:.0f} s")


def peers_can_carry(facts: Facts, asked: OfWorker) -> Said:
    """Judge the others by KV usage for decode, by who waits for prefill."""
    view = facts.view
    worker = view.cluster.get(asked.worker)
    if worker is None:
        return unsure(f"{asked.worker} is not in the inventory")
    others = [w for w in carriers(facts, view.cluster.of_role(worker.role)) if w != worker.id]
    if not others:
        return failed(f"no other {worker.role} worker than {worker.id} is in use", "nobody would take its requests")
    ask = Readings(view)
    name = "queue_depth" if worker.role is Role.PREFILL else "kv_cache_usage"
    levels = {w: ask.level(w, name).value for w in others if ask.fresh(w, name)}
    silent = [w for w in others if levels.get(w) is None]
    if silent:
        return unsure(f"{name} is not known of {', '.join(silent)}")
    mean = sum(v or 0.0 for v in levels.values()) / len(others)
    own = ask.level(worker.id, name).value if ask.fresh(worker.id, name) else None
    # What it holds now comes to the others; of one that is silent they are taken to hold as much each.
    after = mean + (own if own is not None else mean) / len(others)
    limit = WAITING if worker.role is Role.PREFILL else FULL
    seen = f"{name} of {len(others)} other{'' if len(others) == 1 else 's'} {mean:.2g}, then {after:.2g}"
    return passed(seen) if after <= limit else failed(seen, f"above {limit:g} they are full")


def kv_headroom(facts: Facts, asked: KvHeadroom) -> Said:
    """Look at the fullest pool of a role over the window."""
    ask = Readings(facts.view)
    pools = facts.view.cluster.pools(asked.role)
    usages = [
        ask.highest(pool_key(p), "kv_cache_usage", 0.99) for p in pools if ask.fresh(pool_key(p), "kv_cache_usage")
    ]
    known = [u.value for u in usages if u.value is not None and not u.missing]
    if not pools or len(known) < len(pools):
        return unsure(f"kv_cache_usage of {asked.role} is not known everywhere now")
    free = 1.0 - max(known)
    seen = f"{free:.0%} free"
    return passed(seen) if free >= asked.least_ratio else failed(seen, f"at least {asked.least_ratio:.0%} must be")


def carriers(facts: Facts, workers: Iterable[Worker]) -> list[str]:
    """Return who may have requests: all but those that surely take none, such as one that is cordoned."""
    world = World(facts.state)
    return [w.id for w in workers if world.takes_requests(w.id) is not False]


def _read(view: View, asked: Signal) -> Reading:
    ask = Readings(view)
    scopes = [pool_key(p) for p in view.cluster.pools(Role(asked.scope))] if asked.scope in set(Role) else [asked.scope]
    readings = [_one(ask, scope, asked) for scope in scopes]
    known = [r for r in readings if r.value is not None]
    if len(known) < len(readings) or not readings:
        return next((r for r in readings if r.value is None), Reading(None, why=f"no {asked.scope} is known"))
    if absent := tuple(dict.fromkeys(w for r in known for w in r.missing)):
        # The greatest of what is known may not be the greatest there is.
        return Reading(None, why=f"{asked.signal} is not known of {', '.join(absent)}", missing=absent)
    return max(known, key=lambda r: r.value or 0.0)


def _one(ask: Readings, scope: str, asked: Signal) -> Reading:
    # One that is given as a rate, mean or percentile only has no series of its own name.
    own = ask.has(scope, asked.signal)
    if (own or asked.stat in ("level", "highest")) and not ask.fresh(scope, asked.signal):
        return Reading(None, why=f"{scope} gives no fresh {asked.signal}")
    if asked.stat in ("p95", "p99"):
        return ask.quantile(scope, asked.signal, int(asked.stat[1:]) / 100)
    ways: dict[str, Callable[[str, str], Reading]] = {
        "level": ask.level,
        "highest": ask.highest,
        "rate": ask.rate,
        "increase": ask.increase,
        "mean": ask.mean,
    }
    return ways[asked.stat](scope, asked.signal)
