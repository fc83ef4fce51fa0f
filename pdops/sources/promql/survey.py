"""Find out what a server has before asking it every few seconds: clock, targets, names, scrape interval, pools."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pdops.catalog.names import canonical_name
from pdops.clock import Clock
from pdops.errors import UsageError
from pdops.model.cluster import Cluster, Role, Secret, Worker
from pdops.sources.promql.api import QueryError, plain
from pdops.sources.promql.client import PromqlClient
from pdops.sources.promql.names import Group, Query, discovery
from pdops.sources.promql.queries import MAX_QUERIES, plan
from pdops.sources.promql.selector import Selector, any_of
from pdops.sources.promql.targets import MAX_WORKERS, SHOWN, Owner, Placement, place

MAX_BY_ADDRESS = 50
"""Up to this many workers can be told by address when no label names their pool."""
MAX_POOLS_BY_ADDRESS = 8
SCRAPE_S = 60.0
"""Assumed until the scrape interval is measured; the default of Prometheus."""
SAID = ("addresses", "clock", "no-metrics", "not-asked", "pools-only", "role-label", "window")
"""Codes of the notes that a survey may have."""
_SAMPLES_IN_WINDOW = 4
_FRESH_INTERVALS = 3.0
_SKEW_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PromqlSettings:
    """Where and how to ask. `selector` picks the cluster's series, `role_label` is the label that names role or pool.

    `window_s` is the span of `rate`. History is asked for from `history_s` to `settling_s` ago: servers fill the newest
    points in late, some by repeating older ones. All times in seconds. Gauges of single workers are read up to
    `per_worker` workers. `headers` are sent along, such as a tenant.
    """

    url: str
    selector: str = "{}"
    role_label: str = "role"
    interval_s: float = 10.0
    window_s: float = 60.0
    history_s: float = 900.0
    settling_s: float = 30.0
    timeout_s: float = 10.0
    per_worker: int = 64
    secret: Secret = field(default_factory=Secret)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a server has. `skew_s` is its clock minus ours, `scrape_s` None while it is not known.

    Data older than `fresh_s` seconds, three scrape intervals, is not about now. `said` maps a note's code to (why, fix).
    """

    placement: Placement
    groups: tuple[Group, ...]
    queries: tuple[Query, ...]
    names: int
    window_s: int
    skew_s: float
    scrape_s: float | None
    fresh_s: float
    escaped: tuple[str, ...]
    said: Mapping[str, tuple[str, str]]


async def survey(
    client: PromqlClient,
    settings: PromqlSettings,
    clock: Clock,
    inventory: Cluster | None,
    name: str,
    known: Mapping[Owner, Worker],
) -> Survey:
    """Ask a server what it has: six questions, and three more for each further pool that is told by address.

    Raises:
        QueryError: a question got no usable answer.
        UsageError: there is nothing to read, or the pools cannot be told.
    """
    said: dict[str, tuple[str, str]] = {}
    selector = Selector.parse(settings.selector)
    skew = await _skew(client, clock, said)
    at_s = clock.now() + skew
    up = await client.query(selector.of("up"), at_s)
    if not up.rows:
        raise await _nothing(client, selector, at_s)
    placement = place(up.rows, settings.role_label, inventory, name, known)
    if len(placement.cluster.workers) > MAX_WORKERS:
        raise UsageError(
            "too many workers",
            where=f"{client.url} {selector}",
            why=f"{len(placement.cluster.workers)} targets have a role, {MAX_WORKERS} are the most",
            hint="narrow the selector to one cluster",
        )
    groups = _groups(client, placement, selector, settings.role_label, given=inventory is not None, said=said)
    scrape = await _scrape_interval(client, placement, selector, at_s)
    window = math.ceil(max(settings.window_s, _SAMPLES_IN_WINDOW * (scrape or 0.0)))
    if window > settings.window_s:
        why = f"rates are over {window} s: targets are scraped every {scrape:g} s and a rate needs several samples"
        said["window"] = (why, "scrape the engines every 15 s or more often")
    present = await _present(client, groups, at_s)
    workers = len(placement.cluster.workers)
    fresh = _FRESH_INTERVALS * (scrape or SCRAPE_S)
    queries = plan(groups, present, window_s=window, workers=workers, per_worker=settings.per_worker, fresh_s=fresh)
    if len(queries) > MAX_QUERIES:
        left = ", ".join(dict.fromkeys(q.about for q in queries[MAX_QUERIES:]))
        said["not-asked"] = (
            f"{len(queries) - MAX_QUERIES} questions are left out: {left[:200]}",
            "narrow the selector",
        )
    if workers > settings.per_worker:
        why = f"{workers} workers: only pools, failing workers and fresh starts are read"
        said["pools-only"] = (why, "scrape the workers of the pool under suspicion directly")
    if not present:
        said["no-metrics"] = (
            f"no metric that pdops knows exists under {selector}",
            "check that the engines are scraped",
        )
    return Survey(
        placement=placement,
        groups=groups,
        queries=queries[:MAX_QUERIES],
        names=len(present),
        window_s=window,
        skew_s=skew,
        scrape_s=scrape,
        fresh_s=fresh,
        escaped=tuple(n for n in sorted(present) if canonical_name(n)[1]),
        said=said,
    )


async def _skew(client: PromqlClient, clock: Clock, said: dict[str, tuple[str, str]]) -> float:
    before = clock.now()
    rows = (await client.query("time()")).rows
    theirs = float(rows[0].v[-1]) if rows else math.nan
    skew = theirs - (before + clock.now()) / 2.0
    if not math.isfinite(skew) or abs(skew) < _SKEW_S:
        return 0.0
    said["clock"] = (f"the server's clock is {skew:+.0f} s from ours; times are corrected", "run NTP on both")
    return skew


async def _nothing(client: PromqlClient, selector: Selector, at_s: float) -> UsageError:
    """Say which values the selector's labels do have."""
    there: list[str] = []
    for label in selector.labels[:3]:
        try:
            values = await client.label_values(label, at_s - 3600.0, at_s)
        except QueryError:
            continue
        shown = plain(", ".join(values[:8])) + (f" and {len(values) - 8} more" if len(values) > 8 else "")
        there.append(f"{label} has {shown}" if values else f"no series has a label {label}")
    hint = "; ".join(there) or "check that this server scrapes the cluster: its page /targets lists what it does"
    return UsageError("nothing is found", where=client.url, why=f"no `up` series matches {selector}", hint=hint)


def _groups(
    client: PromqlClient,
    placement: Placement,
    selector: Selector,
    label: str,
    *,
    given: bool,
    said: dict[str, tuple[str, str]],
) -> tuple[Group, ...]:
    """Choose how pools are told apart: by the role label where it agrees with the inventory, else by address."""
    by_label = (Group(selector, {v: role for v, (_, role) in placement.pools.items()}, label=label),)
    placed = [t for t in placement.targets if t.worker is not None]
    values = Counter(t.role_value or "(none)" for t in placement.targets)
    seen = plain(", ".join(f"{v} x{n}" for v, n in values.most_common(SHOWN)))
    pools = {w.id: w.pool for w in placement.cluster.workers}
    right = {t.worker for t in placed if placement.pool(t.role_value) == pools[t.worker or ""]}
    wrong = [t for t in placed if t.worker not in right]
    if placed and not wrong:
        return by_label
    if not placed and any(placement.pool(t.role_value) for t in placement.targets):
        hint = "set the workers' url or metrics to what Prometheus has as instance"
        said["addresses"] = ("no target has the address of a worker of the inventory; pools are told by label", hint)
        return by_label
    count = len(placement.cluster.workers)
    if placed and given and count <= MAX_BY_ADDRESS and len(set(pools.values())) <= MAX_POOLS_BY_ADDRESS:
        return tuple(
            Group(selector.plus("instance", "=~", any_of(sorted(found))), {pool: role}, pool=pool)
            for pool, (role, found) in _addresses(placement).items()
        )
    if placed and len(wrong) * 2 < len(placed):
        names = ", ".join(t.name for t in wrong[:SHOWN])
        why = f"{len(wrong)} targets have no {label} label, or another role than in the inventory: {names}"
        said["role-label"] = (why, f"add the label {label} to their scrape configuration")
        return by_label
    fix = f"add a target label {label} with prefill, decode, … in the scrape configuration, or name another role_label"
    if placed:
        most = f"at most {MAX_BY_ADDRESS} in {MAX_POOLS_BY_ADDRESS} can be told by address"
        why = f"label {label} has {seen}; {count} workers in {len(set(pools.values()))} pools, {most}"
        raise UsageError("pools cannot be told apart", where=client.url, why=why, hint=fix)
    targets = ", ".join(t.name for t in placement.targets[:SHOWN])
    why = f"label {label} has {seen}" + ("; no address is in the inventory" if given else "") + f"; targets: {targets}"
    raise UsageError(
        "no target is a worker", where=client.url, why=why, hint=fix + ", or list the workers in pdops.yaml"
    )


def _addresses(placement: Placement) -> dict[str, tuple[Role, list[str]]]:
    out: dict[str, tuple[Role, list[str]]] = {}
    for target in placement.targets:
        worker = placement.cluster.get(target.worker) if target.worker is not None else None
        if worker is not None and target.instance:
            out.setdefault(worker.pool, (worker.role, []))[1].append(target.instance)
    return {pool: (role, sorted(set(found))) for pool, (role, found) in out.items()}


async def _scrape_interval(client: PromqlClient, placement: Placement, selector: Selector, at_s: float) -> float | None:
    """Measure on one target of each role value: the slowest median distance of raw samples, in seconds."""
    chosen = {t.role_value: t.instance for t in reversed(placement.targets) if t.worker is not None and t.instance}
    if not chosen:
        return None
    some = selector.plus("instance", "=~", any_of(sorted(set(chosen.values()))[:8]))
    try:
        rows = (await client.query(some.of("up", 600), at_s)).rows
    except QueryError:
        return None
    gaps = [float(np.median(np.diff(row.t))) for row in rows if len(row.t) > 1]
    return max(gaps) if gaps else None


async def _present(client: PromqlClient, groups: tuple[Group, ...], at_s: float) -> dict[str, int]:
    found: Counter[str] = Counter()
    questions = [q for group in groups for q in discovery(group)]
    for answer in await asyncio.gather(*(client.query(q.expr, at_s) for q in questions)):
        for row in answer.rows:
            found[row.labels.get("__name__", "")] += int(row.v[-1]) if np.isfinite(row.v[-1]) else 0
    return dict(found)
