"""The P×D matrix."""

from __future__ import annotations

from pdops.diagnose.limits import FALLBACK, SLOW
from pdops_tui.draw.line import span, wrap
from pdops_tui.draw.matrix import add_matrix
from pdops_tui.draw.sheet import Draft, Sheet
from pdops_tui.models.matrix import matrix
from pdops_tui.models.pairs import IDLE, VALUES
from pdops_tui.models.text import clean, pad
from pdops_tui.places import PAIR, Place
from pdops_tui.screens.scene import Scene


def sheet(scene: Scene) -> Sheet:
    """Return the matrix, what it says, and where it comes from."""
    wish = scene.session.matrix
    made = matrix(scene.ask, wish)
    value = VALUES[wish.value]
    out = Draft(scene.width)
    if not made.pairs:
        out.title("KV TRANSFER P x D")
        out.add(span(" there is no pair: the cluster has no prefill or no decode worker", "dim"))
        return out.sheet()
    add_matrix(out, made, relative=wish.relative)
    if made.grouped:
        out.title("THE WORST PAIRS", "enter opens a pair")
        for name, cell, share in made.worst:
            beside = f"{share:.2g} of the median" if share is not None else ""
            out.spot(
                ((f" {pad(clean(name), 40)} ", ""), (pad(f"{cell.text} {cell.mark}", 12), cell.style), (beside, "dim")),
                Place(PAIR, name),
                start=1,
            )
    out.add(())
    for text in made.says:
        out.add(span(f" {text}", "warn"))
    middle = f"median {value.form(made.median)}" if made.median is not None else "too few pairs for a median"
    out.add(span(f" {made.told} of {made.pairs} pairs known, {middle}, last {scene.ask.view.now.span_s:g} s"))
    marks = f"! beyond {1 / SLOW:.2g} times, X beyond {1 / FALLBACK:.2g} times the median" if value.worse else ""
    if wish.value == "failures":
        marks = "X when any failed"
    legend = "; ".join(p for p in (marks, f"{IDLE} no transfer in the window", "? not known") if p)
    for text in (legend, made.source):
        out.extend(
            span(f" {line}", "unknown" if text.startswith("?") else "dim")
            for line in wrap(text, max(20, scene.width - 2))
        )
    return out.sheet()
