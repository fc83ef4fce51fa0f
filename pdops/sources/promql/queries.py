"""Build the questions of one tick from the catalog. Nothing here touches the network.

The server adds up: one question per canonical signal, whatever the number of workers. Gauges of all signals share one
`sum` and one `max` question, keyed by `__name__`; `rate` loses the name, so counters and histograms are asked one by
one. Signals that differ only in a label match (requests by outcome) share one question that keeps that label.

`histogram_quantile` is never asked for: it makes up a number in the top bucket. `increase` is not asked for either: on
Prometheus it is `rate` times the window, so `Readings.increase` gets the same number from the rate, and asking every
interval with a window at least as long leaves no event out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pdops.model.cluster import Role
from pdops.model.series import Kind
from pdops.sources.promql.names import Candidate, Group, Part, Query, Read, candidates, probe
from pdops.sources.promql.selector import Selector, any_of

MAX_QUERIES = 160
"""Questions per tick are cut here; what is left out is said."""
MAX_PAIRS = 256
"""Pair signals are read up to this many series."""
WORST = 16
"""Of large pools only this many workers are named per failure counter."""
YOUNG_S = 900.0
TARGET = ("instance", "pod")
"""Labels that tell targets apart."""

FAILURES: Mapping[str, Role | None] = {
    "kv_transfer_failures": None,
    "kv_transfer_expired": None,
    "kv_notifications_after_expiry": None,
    "local_prefill_tokens": Role.DECODE,
    "preemptions": None,
}
"""Counters that name a guilty worker, with the only role they say something about."""
PER_WORKER = ("kv_cache_usage", "queue_depth", "running_requests", "process_start_seconds")


def plan(
    groups: Iterable[Group], present: Mapping[str, int], *, window_s: int, workers: int, per_worker: int, fresh_s: float
) -> tuple[Query, ...]:
    """Return the questions of one tick.

    Args:
        groups: where the pools are.
        present: sample names that exist, with their number of series.
        window_s: span of `rate`, in seconds.
        workers: how many workers there are.
        per_worker: gauges of single workers are asked up to this many workers.
        fresh_s: a gauge of a target whose `up` is older than this, in seconds, does not count.
    """
    known = candidates(present)
    few = workers <= per_worker
    out: list[Query] = []
    for group in groups:
        out += _gauges(group, [c for c in known if _of_pool(c)], fresh_s)
        out += _counters(group, [c for c in known if _of_pool(c)], window_s)
        out += _failures(group, known, window_s, few=few)
        out += _by_target(group, known, fresh_s) if few else _starts(group, known)
        pairs = [c for c in known if c.spec.key.pair and sum(present[probe(c.spec, n)] for n in c.names) <= MAX_PAIRS]
        out += _counters(group, pairs, window_s)
        out += _by_router(group, [c for c in known if c.spec.key.worker], window_s, fresh_s, few=few)
        out += _histograms(group, [c for c in known if _of_pool(c)], window_s)
        out += _pair_times(group, pairs, window_s)
    return tuple(out)


def _gauges(group: Group, known: list[Candidate], fresh_s: float) -> Iterator[Query]:
    mine = [c for c in known if c.signal.kind is Kind.GAUGE]
    for adds, word in ((True, "sum"), (False, "max")):
        alone = [c for c in mine if c.adds is adds and len(c.names) == 1]
        if alone:
            selector = group.selector.plus("__name__", "=~", any_of(sorted({c.names[0] for c in alone})))
            by = ("__name__", *group.by, *_labels(alone))
            reads = tuple(Read(c, rate=False, names=frozenset(c.names)) for c in alone)
            expr = f"{word} by ({','.join(by)}) ({_fresh(selector.of(), group, fresh_s)})"
            yield Query(f"gauges by {word}", expr, reads, group.pool)
        for one in (c for c in mine if c.adds is adds and len(c.names) > 1):
            by = (*group.by, *_labels([one]))
            inner = _fresh(f"({_union(group.selector.of(name) for name in one.names)})", group, fresh_s)
            yield Query(one.signal.name, f"{word} by ({','.join(by)}) ({inner})", (Read(one, rate=False),), group.pool)


def _counters(group: Group, known: list[Candidate], window_s: int) -> Iterator[Query]:
    shared: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Candidate]] = {}
    for candidate in known:
        if candidate.signal.kind is Kind.COUNTER:
            shared.setdefault((candidate.samples(""), candidate.spec.key.pair or ()), []).append(candidate)
    for (names, pair), mine in shared.items():
        by = (*(pair or group.by), *_labels(mine))
        expr = f"sum by ({','.join(by)}) ({_rates(names, group.selector, window_s)})"
        yield Query(" and ".join(c.signal.name for c in mine), expr, tuple(Read(c) for c in mine), group.pool)


def _histograms(group: Group, known: list[Candidate], window_s: int) -> Iterator[Query]:
    for one in (c for c in known if c.signal.kind is Kind.HISTOGRAM):
        # The +Inf bucket is the count; a summary has no buckets and gives its count itself.
        second: Part = "bucket" if one.spec.kind == "histogram" else "count"
        parts: tuple[Part, ...] = ("sum", second)
        for part in parts:
            by = (*group.by, *(("le",) if part == "bucket" else ()), *_labels([one]))
            expr = f"sum by ({','.join(by)}) ({_rates(one.samples(part), group.selector, window_s)})"
            yield Query(f"{one.signal.name} {part}", expr, (Read(one, part),), group.pool)


def _pair_times(group: Group, pairs: list[Candidate], window_s: int) -> Iterator[Query]:
    """Ask for sums and counts only: buckets of every pair would grow with the product of the pools."""
    for one in (c for c in pairs if c.signal.kind is Kind.HISTOGRAM):
        for part in ("sum", "count"):
            by = (*(one.spec.key.pair or ()), *_labels([one]))
            expr = f"sum by ({','.join(by)}) ({_rates(one.samples(part), group.selector, window_s)})"
            yield Query(f"{one.signal.name} {part} by pair", expr, (Read(one, part),), group.pool)


def _failures(group: Group, known: tuple[Candidate, ...], window_s: int, *, few: bool) -> Iterator[Query]:
    """Ask who fails. Of few workers all are named and 0 is a measured zero; of many, the worst that are above 0."""
    for one in known:
        if one.signal.name not in FAILURES or not _of_pool(one) or one.spec.key.scope:
            continue
        role = FAILURES[one.signal.name]
        selector = group.selector if role is None else group.only(role)
        if selector is None:
            continue
        for label, pattern in one.spec.match.items():
            selector = selector.plus(label, "=~", pattern)
        expr = f"sum by ({','.join(TARGET)}) ({_rates(one.samples(''), selector, window_s)})"
        expr = expr if few else f"topk({WORST}, {expr} > 0)"
        yield Query(f"{one.signal.name} by worker", expr, (Read(one, by_target=True),), group.pool)


def _starts(group: Group, known: tuple[Candidate, ...]) -> Iterator[Query]:
    """Ask which processes are young: restarts come first in a diagnosis."""
    for one in known:
        if one.signal.name == "process_start_seconds" and one.rank == 0:
            inner = _union(group.selector.of(name) for name in one.names)
            expr = f"topk({WORST}, max by ({','.join(TARGET)}) ({inner}) > time() - {YOUNG_S:g})"
            yield Query("youngest workers", expr, (Read(one, rate=False, by_target=True),), group.pool)


def _by_target(group: Group, known: tuple[Candidate, ...], fresh_s: float) -> Iterator[Query]:
    mine = [c for c in known if c.signal.name in PER_WORKER and _of_pool(c) and not c.spec.key.scope]
    if mine:
        names = sorted({n for c in mine for n in c.names})
        by = ("__name__", *TARGET, "engine", *_labels(mine))
        selector = group.selector.plus("__name__", "=~", any_of(names))
        expr = f"max by ({','.join(by)}) ({_fresh(selector.of(), group, fresh_s)})"
        reads = tuple(Read(c, rate=False, names=frozenset(c.names), by_target=True) for c in mine)
        yield Query("gauges by worker", expr, reads, group.pool)


def _by_router(group: Group, known: list[Candidate], window_s: int, fresh_s: float, *, few: bool) -> Iterator[Query]:
    """Ask for what a router keeps about each worker; of many, for those most used or least well."""
    for one in known:
        by = (str(one.spec.key.worker), *_labels([one]))
        counts = one.signal.kind is Kind.COUNTER
        if one.signal.kind is Kind.HISTOGRAM:
            continue
        if counts:
            inner = _rates(one.samples(""), group.selector, window_s)
        else:
            inner = _fresh(f"({_union(group.selector.of(name) for name in one.names)})", group, fresh_s)
        expr = f"{'sum' if one.adds else 'max'} by ({','.join(by)}) ({inner})"
        if not few:
            expr = f"bottomk({WORST}, {expr} < 1)" if one.signal.unit == "bool" else f"topk({WORST}, {expr} > 0)"
        yield Query(f"{one.signal.name} by router", expr, (Read(one, rate=counts),), group.pool)


def _rates(names: tuple[str, ...], selector: Selector, window_s: int) -> str:
    return _union(f"rate({selector.of(name, window_s)})" for name in names)


def _fresh(inner: str, group: Group, fresh_s: float) -> str:
    """Leave out what the server repeats of targets that it has not scraped for a while; it does so for five minutes."""
    return f"{inner} and on ({','.join(TARGET)}) (time() - timestamp({group.selector.of('up')}) < {fresh_s:g})"


def _union(terms: Iterable[str]) -> str:
    """Return a union in which a target counts with the first term that it has, whatever other labels there are."""
    return f" or on ({','.join(TARGET)}) ".join(terms)


def _labels(known: Iterable[Candidate]) -> tuple[str, ...]:
    return tuple(sorted({label for c in known for label in c.spec.match}))


def _of_pool(candidate: Candidate) -> bool:
    key = candidate.spec.key
    return key.worker is None and key.pair is None
