"""Share the screen out: the header first, then the pools, then the diagnosis, then events."""

from __future__ import annotations

from dataclasses import dataclass

from pdops_tui.draw.panes import diagnosis_lines
from pdops_tui.models.screen import Screen

WIDE = 176
"""From this many columns on the diagnosis stands at the right of the tables instead of below them."""
_SIDE = 72
_TABLE_FRAME = 2
_EVENTS_MOST = 8
_MATRIX_MOST = 10
_LEAST_DIAGNOSIS = 7
"""Lines of the diagnosis before the matrix, trends and events get any."""
EVERYTHING = 10_000
PLOT = 6
"""Lines of a trend that is drawn large, besides its own."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Lines for each part, titles included; 0 leaves it out. `side` is the width of the right column, 0 for none.

    `header` counts the lines of the header proper, `top` all lines above the tables. In the right column stand
    diagnosis and events; their heights then fill `body`.
    """

    width: int
    header: int
    top: int
    tables: tuple[int, ...]
    others: int
    matrix: int
    trends: int
    diagnosis: int
    events: int
    side: int

    @property
    def main(self) -> int:
        """Width of the tables."""
        return self.width - self.side - (1 if self.side else 0)


def plan(screen: Screen, width: int, height: int | None, *, footer: int = 1) -> Plan:
    """Return the heights for a screen of `height` lines; with None everything gets what it needs."""
    wants = [_TABLE_FRAME + len(t) for t in screen.tables]
    extra = (1 if screen.header.trouble else 0) + (1 if screen.header.position is not None else 0)
    side = _SIDE if width >= WIDE else 0
    matrix, trends = _matrix(screen), 1 + len(screen.trends)
    happened = 1 + max(1, min(_EVENTS_MOST, len(screen.events)))
    if height is None:
        return Plan(width, 5, 5 + extra, tuple(wants), len(screen.others), matrix, trends, EVERYTHING, happened, 0)
    header = 5 if height >= 22 else 4 if height >= 18 else 3 if height >= 12 else 2
    body = max(0, height - header - extra - footer)
    others = min(len(screen.others), max(1, body // 8)) if screen.others and body >= 10 else 0
    if side:
        events = min(1 + max(1, len(screen.events)), body // 3)
        shared = _shared(wants, body - others)
        left = body - others - sum(shared)
        matrix = matrix if matrix <= left else 0
        trends = min(trends + PLOT * len(screen.trends), left - matrix) if left - matrix >= 2 else 0
        return Plan(width, header, header + extra, shared, others, matrix, trends, body - events, events, side)
    needs = 1 + len(diagnosis_lines(screen.diagnosis, width, None))
    least = min(1 + len(screen.diagnosis.entries), 6 if body >= 18 else 4 if body >= 12 else 2)
    tables = _shared(wants, max(0, body - others - least))
    left = body - others - sum(tables)
    diagnosis = min(needs, left, _LEAST_DIAGNOSIS)
    left -= diagnosis
    matrix = matrix if matrix <= left else 0
    left -= matrix
    events = min(left, happened, 3) if left >= 2 else 0
    left -= events
    more = min(needs - diagnosis, left)
    diagnosis, left = diagnosis + more, left - more
    trends = min(trends, left) if left >= 2 else 0
    left -= trends
    more = min(left, happened - events) if events else 0
    events, left = events + more, left - more
    # Only what would stay empty is used to draw large.
    trends += left // PLOT * PLOT if trends else 0
    return Plan(width, header, header + extra, tables, others, matrix, trends, diagnosis, events, 0)


def _matrix(screen: Screen) -> int:
    """Return the lines that the matrix wants; none without a pair."""
    if not screen.matrix.pairs:
        return 0
    if not screen.matrix.told and not screen.matrix.idle:
        return 2
    return min(_MATRIX_MOST, 2 + len(screen.matrix.rows))


def _shared(wants: list[int], room: int) -> tuple[int, ...]:
    """Give small tables what they want and large ones equal shares of the rest, so that none is crowded out."""
    given = [0] * len(wants)
    order = sorted(range(len(wants)), key=lambda i: wants[i])
    for done, index in enumerate(order):
        given[index] = min(wants[index], room // (len(wants) - done))
        room -= given[index]
    return tuple(given)
