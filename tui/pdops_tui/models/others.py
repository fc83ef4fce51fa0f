"""Routers and KV stores, one line each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pdops.model.cluster import CLIENT, ROUTER, Role, Worker
from pdops.model.series import Reading, unknown
from pdops_tui.models.ask import AWAY, Ask
from pdops_tui.models.format import Cell, Form, cell, count, marked, per_second, percent, size, unknown_cell
from pdops_tui.models.text import clean


@dataclass(frozen=True, slots=True)
class Other:
    """One line: the role, the id, the state, and labelled values in order of importance."""

    role: str
    id: str
    name: str
    state: Cell
    values: tuple[tuple[str, Cell], ...]
    dim: bool = False


def others(ask: Ask) -> tuple[Other, ...]:
    """Return a line for each router and each store, in inventory order."""
    makers: dict[Role, Callable[[Ask, Worker], tuple[tuple[str, Cell], ...]]] = {
        Role.ROUTER: _router,
        Role.KVSTORE: _store,
    }
    return tuple(
        Other(
            worker.role.value,
            worker.id,
            clean(worker.id),
            ask.state(worker),
            makers[worker.role](ask, worker),
            ask.health(worker.id).presence in AWAY,
        )
        for worker in ask.view.cluster.of_role(*makers)
    )


def _router(ask: Ask, worker: Worker) -> tuple[tuple[str, Cell], ...]:
    routers = len(ask.view.cluster.of_role(Role.ROUTER))
    known = [ask.read.last(w.id, "worker_health") for w in ask.view.cluster.of_role(Role.PREFILL, Role.DECODE)]
    seen = [r.value for r in known if r.value is not None]
    healthy = unknown_cell("this router says nothing about its workers (worker_health)")
    if seen:
        good = sum(v > 0 for v in seen)
        healthy = Cell(f"{good}/{len(seen)}", "" if good == len(seen) else "bad", "workers the router calls healthy")
        if good < len(seen):
            healthy = replace(healthy, mark="X")

    # What clients see is kept under one key: with several routers it is the sum, and shown at none of them.
    def at_client(signal: str) -> Reading:
        if routers > 1:
            return unknown("several routers: only their sum is known, see the header")
        return ask.read.rate(CLIENT, signal)

    running = ask.read.last(worker.id, "running_requests")
    if not running.known and routers == 1:
        running = ask.read.last(ROUTER, "running_requests")
    if not running.known and routers == 1:
        running = ask.read.last(CLIENT, "running_requests")
    failed = at_client("request_failure")
    timeouts = at_client("request_timeouts")
    return (
        ("sees healthy", healthy),
        ("running", cell(running, count, "requests")),
        ("ok/s", cell(at_client("request_success"), per_second, "requests/s")),
        ("failed/s", marked(cell(failed, per_second, "requests/s"), failed, warn=0.0)),
        ("timeouts/s", marked(cell(timeouts, per_second, "requests/s"), timeouts, warn=0.0)),
    )


def routed(ask: Ask) -> tuple[tuple[str, Cell, Cell], ...]:
    """Return for each worker whether the router calls it healthy, and its share of the requests of its role."""
    out = []
    for role in (Role.PREFILL, Role.DECODE):
        members = ask.view.cluster.of_role(role)
        rates = {w.id: ask.read.rate(w.id, "worker_selection") for w in members}
        total = sum(r.value for r in rates.values() if r.value is not None)
        for worker in members:
            up = ask.read.last(worker.id, "worker_health")
            health = unknown_cell(up.why or "not known")
            if up.value is not None:
                health = (
                    Cell("yes", sort=1.0) if up.value > 0 else Cell("no", "bad", "the router calls it ill", "X", 0.0)
                )
            found = rates[worker.id]
            share = cell(found, per_second, "requests/s")
            if found.value is not None and total > 0:
                share = Cell(f"{percent(found.value / total)}%", why=share.why, sort=found.value / total)
            out.append((worker.id, health, share))
    return tuple(out)


def _store(ask: Ask, worker: Worker) -> tuple[tuple[str, Cell], ...]:
    up = ask.read.last(worker.id, "kvstore_up")
    serves = unknown_cell(up.why or "not known")
    if up.value is not None:
        serves = Cell("yes") if up.value > 0 else Cell("no", "bad", "kvstore_up is 0", "X")
    used, total = ask.read.last(worker.id, "kvstore_used_bytes"), ask.read.last(worker.id, "kvstore_total_bytes")
    fill: Reading = used
    if used.value is not None:
        fill = total if not total.value else Reading(used.value / total.value, n=used.n)
    refused = ask.read.rate(worker.id, "kvstore_alloc_failures")
    return (
        ("serves", serves),
        ("used", _percent(fill)),
        ("of", _of(total, size)),
        ("evicted/s", cell(ask.read.rate(worker.id, "kvstore_evictions"), per_second, "objects/s")),
        ("refused/s", marked(cell(refused, per_second, "requests/s"), refused, warn=0.0)),
    )


def _percent(fill: Reading) -> Cell:
    made = cell(fill, percent, "ratio", about="kvstore_used_bytes over kvstore_total_bytes")
    return replace(made, text=f"{made.text}%") if made.sort is not None else made


def _of(total: Reading, form: Form) -> Cell:
    return cell(total, form, "bytes", about="kvstore_total_bytes")
