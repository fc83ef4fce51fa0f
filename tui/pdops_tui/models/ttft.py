"""TTFT by stage, as the report splits it."""

from __future__ import annotations

from dataclasses import dataclass

from pdops.model.report import Bound, Report, TtftStage
from pdops_tui.models.format import Cell, seconds, stage_seconds, unknown_cell
from pdops_tui.models.text import clean

LABELS = {
    "prefill_queue": "P-queue",
    "prefill_compute": "prefill",
    "handoff": "handoff",
    "kv_fetch_wait": "fetch",
    "kv_transfer": "KV",
    "decode_wait": "D-wait",
}
SHORT = {"P-queue": "Pq", "prefill": "pre", "handoff": "hand", "D-wait": "Dw"}
"""Labels for a line that is too narrow for the others."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One part of the bar: its label, mean time, and share of the whole (0-1), None when that is not known."""

    label: str
    time: Cell
    share: float | None


@dataclass(frozen=True, slots=True)
class Split:
    """The whole bar. `total` is the sum of the stages; `reason` says why it is not complete."""

    total: Cell
    stages: tuple[Stage, ...]
    reason: str = ""


def split(report: Report | None) -> Split:
    """Return the parts of TTFT; a stage that is not known stays `?` and makes the total a lower bound."""
    if report is None:
        return Split(unknown_cell("not judged yet"), (), "not judged yet")
    if not report.ttft:
        return Split(unknown_cell("the report has no split of TTFT"), (), "the report has no split of TTFT")
    stages = tuple(_stage(s) for s in report.ttft)
    known = [_number(s) for s in report.ttft]
    total = sum(v for v in known if v is not None)
    complete = all(v is not None and not isinstance(s.seconds, Bound) for v, s in zip(known, report.ttft, strict=True))
    silent = [s for s in report.ttft if s.seconds is None]
    reason = "; ".join(f"{LABELS.get(s.stage, clean(s.stage))}: {clean(s.why or 'not known')}" for s in silent)
    if all(v is None for v in known):
        return Split(unknown_cell(reason), stages, reason)
    text = seconds(total) if complete else f">={seconds(total)}"
    return Split(Cell(text, why="mean TTFT, sum of its stages", sort=total), stages, reason)


def _stage(stage: TtftStage) -> Stage:
    label = LABELS.get(stage.stage, clean(stage.stage, 12))
    if stage.seconds is None:
        return Stage(label, unknown_cell(stage.why or "not known"), None)
    return Stage(
        label, Cell(stage_seconds(stage.seconds), why=clean(stage.why or ""), sort=_number(stage)), stage.share
    )


def _number(stage: TtftStage) -> float | None:
    return stage.seconds.value if isinstance(stage.seconds, Bound) else stage.seconds
