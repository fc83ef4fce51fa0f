"""Routers and KV stores: what they say, over time, and what the router says of each worker."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pdops.model.cluster import CLIENT, ROUTER, Role
from pdops_tui.draw.line import Line, span
from pdops_tui.draw.panes import other_lines
from pdops_tui.draw.plot import spark
from pdops_tui.draw.sheet import Draft, Sheet
from pdops_tui.models import trend
from pdops_tui.models.ask import Ask
from pdops_tui.models.format import Form, cell, count, per_second, percent, seconds, size
from pdops_tui.models.others import capacity, routed
from pdops_tui.models.text import clean, clip, pad
from pdops_tui.places import WORKER, Place
from pdops_tui.screens.scene import Scene

BINS = 60
_LABEL, _NOW = 24, 10


@dataclass(frozen=True, slots=True)
class _Sign:
    """One line: what it is called, the signal, whether it is a counter, and how its number is written."""

    label: str
    signal: str
    counts: bool
    form: Form


_SEEN: tuple[tuple[str, _Sign], ...] = (
    (CLIENT, _Sign("requests ok/s", "request_success", True, per_second)),
    (CLIENT, _Sign("requests failed/s", "request_failure", True, per_second)),
    (CLIENT, _Sign("timeouts/s", "request_timeouts", True, per_second)),
    (CLIENT, _Sign("clients gone/s", "client_aborts", True, per_second)),
    (ROUTER, _Sign("in flight", "running_requests", False, count)),
    (ROUTER, _Sign("waiting", "queue_depth", False, count)),
    (ROUTER, _Sign("rejected/s", "admission_rejections", True, per_second)),
    (ROUTER, _Sign("age of its metrics", "router_metric_age_seconds", False, seconds)),
)
_STORE: tuple[_Sign, ...] = (
    _Sign("used", "kvstore_used_bytes", False, size),
    _Sign("capacity", "kvstore_total_bytes", False, size),
    _Sign("evicted/s", "kvstore_evictions", True, per_second),
    _Sign("refused/s", "kvstore_alloc_failures", True, per_second),
    _Sign("memory hits/s", "kvstore_memory_hits", True, per_second),
    _Sign("disk hits/s", "kvstore_disk_hits", True, per_second),
)


def sheet(scene: Scene) -> Sheet:
    """Return routers, what they see of each worker, and stores."""
    ask = scene.ask
    out = Draft(scene.width)
    routers, stores = ask.view.cluster.of_role(Role.ROUTER), ask.view.cluster.of_role(Role.KVSTORE)
    out.title("ROUTERS AND KV STORES", "enter opens one")
    for other, line in zip(scene.screen.others, other_lines(scene.screen.others, scene.width), strict=True):
        out.spot(line, Place(WORKER, other.id), start=1)
    if not routers and not stores:
        out.add(span(" none is in the inventory", "dim"))
    if routers:
        out.title("WHAT CLIENTS AND THE ROUTER SEE", trend.span_of(scene.ask))
        out.extend(_line(ask, scope, sign, scene.width) for scope, sign in _SEEN)
        _workers(out, scene)
    for store in stores:
        out.title(f"KV STORE {clean(store.id)}", trend.span_of(scene.ask))
        out.extend(_line(ask, store.id, sign, scene.width) for sign in _STORE)
    # Engines count what a peer hands over as external too: without a store there is no shared cache.
    hits = [
        w.id
        for w in ask.view.cluster.of_role(Role.PREFILL, Role.DECODE)
        if stores and ask.read.has(w.id, "external_cache_queries")
    ]
    if hits:
        out.title("HITS IN THE SHARED CACHE, by worker")
        for worker in hits:
            found = ask.read.ratio(worker, "external_cache_hits", "external_cache_queries")
            made = cell(found, percent, "ratio")
            text = f"{made.text}%" if made.sort is not None else f"? {made.why}"
            out.spot(
                ((f" {pad(clean(worker), _LABEL)}", "dim"), (clip(text, scene.width - _LABEL - 2), made.style)),
                Place(WORKER, worker),
                start=1,
            )
    return out.sheet()


def _line(ask: Ask, scope: str, sign: _Sign, width: int) -> Line:
    found = ask.read.rate(scope, sign.signal) if sign.counts else ask.read.last(scope, sign.signal)
    over = (trend.rate if sign.counts else trend.gauge)(ask, scope, sign.signal, BINS)
    if sign.signal == "kvstore_total_bytes":
        found = capacity(ask, scope)
        over = replace(over, values=np.where(over.values == 0, np.nan, over.values))
    made = cell(found, sign.form)
    drawn = spark(over, max(8, min(BINS, width - _LABEL - _NOW - 4)))
    if not over.known:
        drawn = span(made.why if made.sort is None else "", "unknown")
    return ((f" {pad(sign.label, _LABEL)}", "dim"), (pad(made.text, _NOW, right=True), made.style), ("  ", ""), *drawn)


def _workers(out: Draft, scene: Scene) -> None:
    found = routed(scene.ask)
    if not any(health.sort is not None or share.sort is not None for _, health, share in found):
        out.add(span(" ? the router says nothing of single workers", "unknown"))
        return
    out.title("WHAT THE ROUTER SEES OF EACH WORKER", "enter opens one")
    name = max((min(len(w), 40) for w, *_ in found), default=0)
    out.add(((f" {pad('WORKER', name)} {pad('HEALTHY', 9)}{pad('GETS', 9, right=True)}", "dim"),))
    for worker, health, share in found:
        line: Line = (
            (f" {pad(clip(clean(worker), name), name)} ", ""),
            (pad(health.text, 9), health.style),
            (pad(share.text, 9, right=True), share.style),
        )
        out.spot(line, Place(WORKER, worker), start=1)
