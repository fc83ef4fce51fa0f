"""Routers and KV stores, one line each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pdops.model.cluster import CLIENT, ROUTER, Role, Worker
from pdops.model.series import Reading, unknown
from pdops_tui.models.ask import AWAY, WHOLE, Ask
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
    healthy = _healthy(ask) if routers == 1 else unknown_cell("several routers: which of them says what is not known")

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


def _healthy(ask: Ask) -> Cell:
    """Return how many the router calls healthy of those it speaks of, which may be fewer than there are."""
    workers = ask.view.cluster.of_role(Role.PREFILL, Role.DECODE)
    said = {w.id: v for w in workers if (v := ask.read.last(w.id, "worker_health").value) is not None}
    if not said:
        return unknown_cell("this router says nothing about its workers (worker_health)")
    ill = [w for w, v in said.items() if v <= 0]
    unsaid = [w.id for w in workers if w.id not in said]
    why = f"calls ill: {', '.join(ill[:8])}" if ill else "calls none ill"
    if unsaid:
        why += f"; says nothing of {', '.join(unsaid[:8])}"
    text = f"{len(said) - len(ill)} of {len(said)}{' it speaks of' if unsaid else ''}"
    return Cell(text, "bad" if ill else "", clean(why), "X" if ill else "")


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
    used, total = ask.read.last(worker.id, "kvstore_used_bytes"), capacity(ask, worker.id)
    fill = used
    if used.value is not None:
        fill = Reading(used.value / total.value, n=used.n) if total.value else total
    if fill.value is not None and fill.value > WHOLE:
        fill = unknown(f"it says that it uses {used.value:g} of {total.value:g} bytes, which is impossible")
    refused = ask.read.rate(worker.id, "kvstore_alloc_failures")
    return (
        ("serves", serves),
        ("used", _percent(fill)),
        ("of", _of(total, size)),
        ("evicted/s", cell(ask.read.rate(worker.id, "kvstore_evictions"), per_second, "objects/s")),
        ("refused/s", marked(cell(refused, per_second, "requests/s"), refused, warn=0.0)),
    )


def capacity(ask: Ask, store: str) -> Reading:
    """Return the bytes a store has room for; 0 is what one says that has none to tell."""
    total = ask.read.last(store, "kvstore_total_bytes")
    return unknown("kvstore_total_bytes is 0: it tells no capacity") if total.value == 0 else total


def _percent(fill: Reading) -> Cell:
    made = cell(fill, percent, "ratio", about="kvstore_used_bytes over kvstore_total_bytes")
    return replace(made, text=f"{made.text}%") if made.sort is not None else made


def _of(total: Reading, form: Form) -> Cell:
    return cell(total, form, "bytes", about="kvstore_total_bytes")
