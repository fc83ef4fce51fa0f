"""Several sources beside each other: the same numbers of each, and what changed from the first to the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pdops_tui.models.format import VERDICT_MARK, VERDICT_STYLE, Cell, Style, percent, unknown_cell
from pdops_tui.models.screen import Screen, build
from pdops_tui.models.text import clean
from pdops_tui.models.ttft import LABELS
from pdops_tui.session import Session
from pdops_tui.snapshot import Snapshot

_SAME = 0.05
"""A number that moved by less than this part of itself is called the same."""

_NOTHING = Cell("")


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that is compared: a cell for each source, and the change from the first to the last."""

    label: str
    cells: tuple[Cell, ...]
    change: Cell = _NOTHING


@dataclass(frozen=True, slots=True)
class Section:
    """Lines that belong together."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All there is to compare; `names` are the heads of the columns."""

    names: tuple[str, ...]
    sections: tuple[Section, ...]


def compare(snapshots: Sequence[Snapshot], session: Session | None = None) -> Comparison:
    """Return the sources beside each other, in their order."""
    screens = [build(snapshot, session) for snapshot in snapshots]
    names = tuple(_name(screen) for screen in screens)
    roles = dict.fromkeys(table.role for screen in screens for table in screen.tables)
    sections = [_diagnosis(screens), _clients(screens), _split(screens)]
    for role in roles:
        pools = dict.fromkeys(p for s in screens for t in s.tables if t.role is role for p in t.pools)
        sections += [_pool(screens, role.value, pool) for pool in pools]
    return Comparison(names, tuple(sections))


def _name(screen: Screen) -> str:
    source = screen.snapshot.source.removeprefix("replay ").removesuffix(".pdrec")
    return clean(source if screen.snapshot.position is not None else screen.header.cluster, 40)


def _diagnosis(screens: Sequence[Screen]) -> Section:
    reports = [screen.snapshot.report for screen in screens]
    tops = [report.top if report is not None else None for report in reports]
    verdicts = tuple(
        unknown_cell("not judged yet")
        if report is None
        else Cell(f"{VERDICT_MARK[report.verdict]} {report.verdict.value}", VERDICT_STYLE[report.verdict])
        for report in reports
    )
    causes = tuple(Cell(clean(f"{top.confidence:.2f} {top.cause}")) if top else Cell("-", "dim") for top in tops)
    places = tuple(
        Cell(clean(", ".join(str(s) for s in top.scopes[:2]) or "whole cluster")) if top else Cell("-", "dim")
        for top in tops
    )
    times = tuple(Cell(_when(screen)) for screen in screens)
    return Section(
        "DIAGNOSIS", (Line("at", times), Line("verdict", verdicts), Line("first cause", causes), Line("where", places))
    )


def _when(screen: Screen) -> str:
    position = screen.snapshot.position
    if position is None:
        return screen.header.time
    return f"{screen.header.time} +{position.at_s - position.start_s:.0f}s"


def _clients(screens: Sequence[Screen]) -> Section:
    lines = []
    for index, name in enumerate(("TTFT", "ITL")):
        cells = tuple(screen.header.promises[index].value for screen in screens)
        labels = {screen.header.promises[index].label for screen in screens}
        # Two percentiles beside each other are no comparison.
        same = len(labels) == 1
        lines.append(
            Line(labels.pop() if same else name, cells, _change(cells, worse_up=True) if same else Cell("not the same"))
        )
    flows = list(zip(*(screen.header.flows for screen in screens), strict=True))
    for each in flows:
        first = each[0]
        cells = tuple(flow.value for flow in each)
        label = f"{first.label} {first.unit}".strip() if first.label != "err" else "errors %"
        lines.append(Line(label, cells, _change(cells, worse_up=True if first.label == "err" else None)))
    return Section("CLIENTS", tuple(lines))


def _split(screens: Sequence[Screen]) -> Section:
    totals = tuple(screen.split.total for screen in screens)
    lines = [Line("mean TTFT", totals, _change(totals, worse_up=True))]
    for label in LABELS.values():
        stages = [next((s for s in screen.split.stages if s.label == label), None) for screen in screens]
        cells = tuple(
            unknown_cell(screen.split.reason or "no such stage")
            if stage is None
            else Cell(
                stage.time.text + (f" {percent(stage.share)}%" if stage.share is not None else ""),
                stage.time.style,
                stage.time.why,
                stage.time.mark,
                stage.time.sort,
            )
            for stage, screen in zip(stages, screens, strict=True)
        )
        lines.append(Line(label, cells, _change(cells, worse_up=True)))
    return Section("TTFT BY STAGE", tuple(lines))


def _pool(screens: Sequence[Screen], role: str, pool: str) -> Section:
    found = []
    for screen in screens:
        table = next((t for t in screen.tables if t.role.value == role and pool in t.pools), None)
        row = table.row(len(table.ids) + table.pools.index(pool)) if table is not None else None
        found.append((table, row))
    columns = dict.fromkeys((c.key, c.title) for table, _ in found if table is not None for c in table.columns)
    missing = unknown_cell("this source has no such pool")
    lines = [Line("workers up", tuple(missing if row is None else row.state for _, row in found))]
    for key, title in columns:
        cells = []
        for table, row in found:
            place = next((i for i, c in enumerate(table.columns) if c.key == key), None) if table is not None else None
            cells.append(missing if row is None or place is None else row.cells[place])
        lines.append(Line(title, tuple(cells), _change(tuple(cells))))
    return Section(clean(f"{role.upper()} POOL {pool}" if pool != role else f"{role.upper()} POOL"), tuple(lines))


def _change(cells: tuple[Cell, ...], *, worse_up: bool | None = None) -> Cell:
    """Return how far the last cell is from the first; a bound or a part has no ratio."""
    first, last = cells[0], cells[-1]
    if len(cells) < 2:
        return _NOTHING
    if first.sort is None or last.sort is None:
        return unknown_cell("one of the two is not known")
    if first.text.startswith((">=", "<=", "~")) or last.text.startswith((">=", "<=", "~")):
        return unknown_cell("one of the two is only a bound or a part")
    if first.sort == last.sort:
        return Cell("same", "dim", sort=1.0)
    word, style = _better(last.sort > first.sort, worse_up)
    if first.sort == 0.0 or last.sort == 0.0:
        return Cell(("from 0" if first.sort == 0.0 else "to 0") + word, style)
    ratio = last.sort / first.sort
    if abs(ratio - 1.0) < _SAME:
        return Cell("same", "dim", sort=ratio)
    text = f"x{ratio:.3g}" if 0.01 <= ratio < 1000 else "x>1000" if ratio >= 1000 else "x<.01"
    return Cell(text + word, style, sort=ratio)


def _better(grew: bool, worse_up: bool | None) -> tuple[str, Style]:
    if worse_up is None:
        return "", ""
    return (" worse", "warn") if grew == worse_up else (" better", "good")
