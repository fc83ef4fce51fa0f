"""One prefill and decode pair: every value that is told of it, over time."""

from __future__ import annotations

from pdops.model.cluster import Pair
from pdops_tui.draw.line import span
from pdops_tui.draw.plot import heat_lines, plot
from pdops_tui.draw.sheet import Draft, Sheet
from pdops_tui.models import trend
from pdops_tui.models.format import seconds, size
from pdops_tui.models.pairs import pair_cells
from pdops_tui.models.text import clean, pad
from pdops_tui.places import WORKER, Place
from pdops_tui.screens.scene import Scene

BINS = 60


def sheet(scene: Scene) -> Sheet:
    """Return the pair of the place."""
    ask = scene.ask
    out = Draft(scene.width)
    try:
        pair = Pair.parse(scene.place.id)
    except ValueError:
        out.add(span(f" {clean(scene.place.id, 130)} is no pair", "unknown"))
        return out.sheet()
    out.title(f"PAIR {clean(pair.src)} > {clean(pair.dst)}")
    for name, who in (("sender", pair.src), ("receiver", pair.dst)):
        worker = ask.view.cluster.get(who)
        state = ask.state(worker) if worker is not None else None
        node = f"  node {clean(worker.node)}" if worker is not None and worker.node else ""
        text = (
            ((f"  {state.text}", state.style), (node, "dim"))
            if state is not None
            else (("  not in the cluster now", "unknown"),)
        )
        out.spot(((f" {pad(name, 9)}", "dim"), (clean(who), "key"), *text), Place(WORKER, who), start=1)
    for label, cell in pair_cells(ask, pair).items():
        out.add(((f" {pad(label, 12)}", "dim"), (pad(f"{cell.text} {cell.mark}", 12), cell.style), (cell.why, "dim")))
    moved = trend.rate(ask, pair.key, "kv_transfer_bytes", BINS)
    if moved.known:
        out.title("BYTES MOVED A SECOND")
        out.extend(plot(moved, min(scene.width, 130), 5, size))
    heat = trend.heat(ask, pair.key, "kv_transfer_seconds", BINS)
    if heat is not None:
        out.title("KV TRANSFER TIME · share of transfers by bucket over time", "share of all")
        out.extend(heat_lines(heat, scene.width, 8))
    handed = trend.percentile(ask, pair.key, "handoff_seconds", 0.95, BINS)
    if handed.known:
        out.title("HAND-OFF p95 · prefill answer to first token, at the router")
        out.extend(plot(handed, min(scene.width, 130), 5, seconds))
    if not moved.known and heat is None and not handed.known:
        out.add(
            span(
                " ? nothing is told of this pair: engines name no peer, and no router or plugin tells of it", "unknown"
            )
        )
    return out.sheet()
