"""Routers and KV stores: what they say, over time, and what the router says of each worker."""

from __future__ import annotations

from collections.abc import Sequence

from pdops.model.cluster import CLIENT, ROUTER, Role
from pdops.model.series import Reading
from pdops_tui.draw.line import Line, span
from pdops_tui.draw.panes import other_lines
from pdops_tui.draw.plot import spark
from pdops_tui.draw.sheet import Draft, Sheet
from pdops_tui.models import trend
from pdops_tui.models.ask import Ask
from pdops_tui.models.format import Form, cell, count, per_second, percent, size
from pdops_tui.models.others import routed
from pdops_tui.models.text import clean, clip, pad
from pdops_tui.places import WORKER, Place
from pdops_tui.screens.scene import Scene

BINS = 60
_LABEL, _NOW = 24, 10

_ROUTER: tuple[tuple[str, str, str, bool, Form], ...] = (
    ("requests ok/s", CLIENT, "request_success", True, per_second),
    ("requests failed/s", CLIENT, "request_failure", True, per_second),
    ("timeouts/s", CLIENT, "request_timeouts", True, per_second),
    ("clients gone/s", CLIENT, "client_aborts", True, per_second),
    ("in flight", ROUTER, "running_requests", False, count),
    ("waiting", ROUTER, "queue_depth", False, count),
    ("rejected/s", ROUTER, "admission_rejections", True, per_second),
    ("age of its metrics", ROUTER, "router_metric_age_seconds", False, per_second),
)
_STORE: tuple[tuple[str, str, bool, Form], ...] = (
    ("used", "kvstore_used_bytes", False, size),
    ("capacity", "kvstore_total_bytes", False, size),
    ("evicted/s", "kvstore_evictions", True, per_second),
    ("refused/s", "kvstore_alloc_failures", True, per_second),
    ("memory hits/s", "kvstore_memory_hits", True, per_second),
    ("disk hits/s", "kvstore_disk_hits", True, per_second),
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
        out.title("WHAT CLIENTS AND THE ROUTER SEE", "last 15 min")
        lines = [(label, scope, signal, counts, form) for label, scope, signal, counts, form in _ROUTER]
        out.extend(_line(ask, scope, *rest, label, scene.width) for label, scope, *rest in lines)  # type: ignore[arg-type]
        _workers(out, scene)
    for store in stores:
        out.title(f"KV STORE {clean(store.id)}", "last 15 min")
        out.extend(_line(ask, store.id, signal, counts, form, label, scene.width) for label, signal, counts, form in _STORE)
    hits = [w.id for w in ask.view.cluster.of_role(Role.PREFILL, Role.DECODE) if ask.read.has(w.id, "external_cache_queries")]
    if hits:
        out.title("HITS IN THE SHARED CACHE, by worker")
        for worker in hits:
            found = ask.read.ratio(worker, "external_cache_hits", "external_cache_queries")
            made = cell(found, percent, "ratio")
            text = f"{made.text}%" if made.sort is not None else f"? {made.why}"
            out.spot(((f" {pad(clean(worker), _LABEL)}", "dim"), (clip(text, scene.width - _LABEL - 2), made.style)), Place(WORKER, worker), start=1)
    return out.sheet()


def _line(ask: Ask, scope: str, signal: str, counts: bool, form: Form, label: str, width: int) -> Line:
    found: Reading = ask.read.rate(scope, signal) if counts else ask.read.last(scope, signal)
    made = cell(found, form)
    over = (trend.rate if counts else trend.gauge)(ask, scope, signal, BINS)
    drawn = spark(over, max(8, min(BINS, width - _LABEL - _NOW - 4))) if over.known else span(made.why if made.sort is None else "", "unknown")
    return ((f" {pad(label, _LABEL)}", "dim"), (pad(made.text, _NOW, right=True), made.style), ("  ", ""), *drawn)


def _workers(out: Draft, scene: Scene) -> None:
    found = routed(scene.ask)
    if not any(health.sort is not None or share.sort is not None for _, health, share in found):
        out.add(span(" ? the router says nothing of single workers", "unknown"))
        return
    out.title("WHAT THE ROUTER SEES OF EACH WORKER", "enter opens one")
    name = max((min(len(w), 40) for w, *_ in found), default=0)
    out.add(((f" {pad('WORKER', name)} {pad('HEALTHY', 9)}{pad('GETS', 9, right=True)}", "dim"),))
    for worker, health, share in found:
        line: Line = ((f" {pad(clip(clean(worker), name), name)} ", ""), (pad(health.text, 9), health.style), (pad(share.text, 9, right=True), share.style))
        out.spot(line, Place(WORKER, worker), start=1)
