"""One worker: vitals beside its pool, its peers, transfer times over time, raw series, what it said."""

from __future__ import annotations

from pdops.model.cluster import Pair, Role, Worker
from pdops.sources.redact import redact_urls
from pdops_tui.draw.line import Line, Span, cut, span
from pdops_tui.draw.panes import event_lines
from pdops_tui.draw.plot import heat_lines, plot
from pdops_tui.draw.sheet import Draft, Sheet
from pdops_tui.draw.vitals import vital_lines
from pdops_tui.models import trend
from pdops_tui.models.ask import AWAY
from pdops_tui.models.events import of_worker
from pdops_tui.models.format import Cell, age, seconds
from pdops_tui.models.pairs import pair_cells
from pdops_tui.models.promql import promql
from pdops_tui.models.text import clean, clip, pad
from pdops_tui.models.vitals import vitals
from pdops_tui.places import DIAGNOSIS, PAIR, POOL, Place
from pdops_tui.screens.scene import Scene

BINS = 60
_PLOT_ROWS = 6
_BUCKETS = 8


def sheet(scene: Scene) -> Sheet:
    """Return the worker of the place."""
    out = Draft(scene.width)
    worker = scene.ask.view.cluster.get(scene.place.id)
    if worker is None:
        out.add(span(f" {clean(scene.place.id, 63)} is not in the cluster now", "unknown"))
        return out.sheet()
    _head(out, scene, worker)
    peers = tuple(w.id for w in scene.ask.view.cluster.of_pool(worker.pool))
    found = vitals(scene.ask, worker.role, worker.id, BINS, peers=peers)
    if found:
        health = scene.ask.health(worker.id)
        away = health.presence in AWAY
        # What a silent worker said last is not about now.
        out.title("VITALS" if not away else f"VITALS, as last heard {age(health.age_s)} ago", trend.span_of(scene.ask))
        out.extend(vital_lines(found, scene.width, peers=len(peers) > 1, dim=away))
    if worker.role in (Role.PREFILL, Role.DECODE):
        _peers(out, scene, worker)
        _transfers(out, scene, worker)
    _latency(out, scene, worker)
    _said(out, scene, worker)
    _raw(out, scene, worker)
    return out.sheet()


def _head(out: Draft, scene: Scene, worker: Worker) -> None:
    ask = scene.ask
    state = ask.state(worker)
    started = ask.read.last(worker.id, "process_start_seconds")
    up = f"up {seconds(max(0.0, ask.view.at_s - started.value))}" if started.value else ""
    facts = ask.view.facts.get(worker.id, {})
    parts = [
        worker.role.value, " ".join(p for p in (worker.engine, worker.version) if p), redact_urls(worker.url or ""),
        f"node {worker.node}" if worker.node else "", f"zone {worker.zone}" if worker.zone else "", up,
        *(f"{name} {facts[name]}" for name in ("tensor_parallel_size", "block_size", "kv_cache_dtype") if name in facts),
    ]  # fmt: skip
    out.add(((f" {state.text} ", state.style), (clean("  ".join(p for p in parts if p)), "")))
    out.add(span(f" {state.why}", "dim" if state.style == "good" else state.style or "dim"))
    out.spot(((f" pool {clean(worker.pool, 60)}", "key"),), Place(POOL, worker.pool), start=1)
    if worker.id in ask.named:
        out.spot(((f" diagnosis: {ask.named[worker.id][3]}", ask.named[worker.id][1]),), Place(DIAGNOSIS), start=1)


def _peers(out: Draft, scene: Scene, worker: Worker) -> None:
    cluster = scene.ask.view.cluster
    sends = worker.role is Role.PREFILL
    others = cluster.of_role(Role.DECODE if sends else Role.PREFILL)
    out.title(f"PEERS · {'receivers' if sends else 'senders'}", "enter opens a pair")
    pairs = [Pair(worker.id, o.id) if sends else Pair(o.id, worker.id) for o in others]
    told = [p for p in pairs if p.key in scene.ask.by_scope]
    if not told:
        why = "engines name no peer, and no router or plugin tells of pairs" if others else "there is none"
        out.add(span(f" ? {why}", "unknown" if others else "dim"))
        return
    rows = [(p, pair_cells(scene.ask, p)) for p in told]
    name = max(len(clean(o.id)) for o in others)
    out.add(((f" {pad('PEER', name)}", "dim"), *((pad(title, 12, right=True), "dim") for title in rows[0][1])))
    for pair, cells in rows:
        line: Line = ((f" {pad(clean(pair.dst if sends else pair.src), name)}", ""), *_shown(cells))
        out.spot(line, Place(PAIR, str(pair)))
    if len(told) < len(pairs):
        out.add(span(f" ? nothing is told of {len(pairs) - len(told)} more", "unknown"))


def _shown(cells: dict[str, Cell]) -> list[Span]:
    out: list[Span] = []
    for cell in cells.values():
        text = f"{cell.text} {cell.mark}" if cell.mark else f"{cell.text}  "
        out.append((pad(clip(text, 12), 12, right=True), cell.style))
    return out


def _transfers(out: Draft, scene: Scene, worker: Worker) -> None:
    found = trend.heat(scene.ask, worker.id, "kv_transfer_seconds", BINS)
    out.title("KV TRANSFER TIME · share of transfers by bucket over time", "share of all")
    if found is None:
        why = scene.ask.read.increase(worker.id, "kv_transfer_seconds").why or "its buckets are not given"
        out.add(span(f" ? {clean(why)}", "unknown"))
        return
    out.extend(heat_lines(found, scene.width, _BUCKETS))


def _latency(out: Draft, scene: Scene, worker: Worker) -> None:
    for signal, limit, roles in (
        ("ttft_seconds", scene.ask.slo.ttft_s, (Role.PREFILL, Role.DECODE, Role.COLOCATED)),
        ("itl_seconds", scene.ask.slo.itl_s, (Role.DECODE, Role.COLOCATED)),
    ):
        if worker.role not in roles:
            continue
        name = signal.removesuffix("_seconds").upper()
        leg = ", its own leg" if name == "TTFT" else ""
        out.title(f"{name} p95{leg}", f"SLO {seconds(limit)}" if limit is not None else "no SLO")
        made = trend.percentile(scene.ask, worker.id, signal, 0.95, BINS)
        if not made.known:
            out.add(span(f" ? {signal} is not known of it over this time", "unknown"))
            continue
        out.extend(plot(made, min(scene.width, 130), _PLOT_ROWS, seconds, limit=limit))


def _said(out: Draft, scene: Scene, worker: Worker) -> None:
    found = of_worker(scene.ask.view, worker.id)
    out.title("EVENTS AND LOG LINES")
    out.extend(event_lines(found, scene.width, 12))


def _raw(out: Draft, scene: Scene, worker: Worker) -> None:
    names = sorted(name for _, name in scene.ask.by_scope.get(worker.id, ()))
    out.title(f"RAW SERIES · {len(names)}", "y copies PromQL")
    wide = max((len(clean(n)) for n in names), default=0)
    for name in names:
        reading = scene.ask.read.last(worker.id, name)
        if reading.value is None:
            rate = scene.ask.read.rate(worker.id, name)
            number = f"{rate.value:.4g}/s" if rate.value is not None else "?"
        else:
            number = f"{reading.value:.6g}"
        found = promql(worker, name)
        metric, query = found if found is not None else ("from another page than its engine's", "")
        line: Line = (
            (f" {pad(clean(name), wide)} ", ""), (pad(number, 12, right=True), "unknown" if number == "?" else ""),
            (f"  {clean(metric)}", "dim"),
        )  # fmt: skip
        out.spot(cut(line, scene.width), None, yank=query)
