"""Draw vital signs: name, number, peers, and the last minutes as a sparkline."""

from __future__ import annotations

from collections.abc import Sequence

from pdops_tui.draw.line import Line
from pdops_tui.draw.plot import spark
from pdops_tui.models.text import pad
from pdops_tui.models.vitals import Vital

_NAME, _NOW, _BESIDE = 9, 12, 26


def vital_lines(vitals: Sequence[Vital], width: int, *, peers: bool, dim: bool = False) -> list[Line]:
    """Return one line a vital sign; `dim` greys numbers that are not about now."""
    beside = _BESIDE if peers and width >= 76 else 0
    room = max(0, width - _NAME - _NOW - beside - 4)
    out: list[Line] = []
    for vital in vitals:
        mark = f" {vital.now.mark}" if vital.now.mark else "  "
        line: Line = (
            (f" {pad(vital.column.title, _NAME)}", "dim"),
            (pad(vital.now.text, _NOW - 2, right=True) + mark, "dim" if dim else vital.now.style),
        )
        if beside:
            ratio = f"{vital.ratio:.2g}x the pool's median" if vital.ratio is not None else ""
            line = (*line, (f"  {pad(ratio, beside - 2)}", "dim"))
        over = spark(vital.over, min(room, 60)) if vital.over.known else ()
        if vital.now.sort is None and not vital.over.known:
            over = ((vital.now.why, "unknown"),)
        out.append((*line, ("  ", ""), *over))
    return out
