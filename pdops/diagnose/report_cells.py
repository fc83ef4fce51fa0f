"""The parts of a report as short texts, shared by every form it is shown in; and a text table that wraps its cells."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pdops.diagnose.text_number import number
from pdops.model.report import Evidence, Hypothesis, Missing, Report, Scope

EVIDENCE = ("", "signal", "where", "observed", "expected", "basis")
"""Columns of a table of evidence; the first says for (+) or against (-)."""
_LEAST = (1, 12, 8, 8, 8, 6)
_PROSE = 14
_GAP = 2
_NAMED = 3
"""How many of those that lack the same are named; the others are counted."""


def place(scopes: Sequence[Scope]) -> str:
    """Return where something is, in words."""
    return ", ".join(map(str, scopes)) or "whole cluster"


def when(report: Report) -> str:
    """Return the time a report is about."""
    return report.at or f"t={report.at_s:g} s"


def gathered(missing: Iterable[Missing]) -> tuple[tuple[Missing, str], ...]:
    """Return each thing that is missing once, with where: what several lack for the same reason has a count and first names.

    A reason that names who lacks it says "each" for several.
    """
    groups: dict[Missing, list[Missing]] = {}
    for item in dict.fromkeys(missing):
        why = item.why
        if item.scope is not None and item.scope.id in why:
            why = re.sub(rf"(?<![\w-]){re.escape(item.scope.id)}(?![\w-])", "each", why)
        groups.setdefault(replace(item, why=why, scope=None), []).append(item)
    return tuple(
        (key, f"{len(items)}: {_names(items)}") if len(items) > 1 else (items[0], str(items[0].scope or ""))
        for key, items in groups.items()
    )


def _names(items: Sequence[Missing]) -> str:
    names = ", ".join(str(i.scope or "whole cluster") for i in items[:_NAMED])
    return names + (f" and {len(items) - _NAMED} more" if len(items) > _NAMED else "")


def evidence_rows(item: Hypothesis) -> list[tuple[str, ...]]:
    """Return the evidence of a hypothesis by the columns of `EVIDENCE`, that for it first."""
    return [evidence_row("+", e) for e in item.for_] + [evidence_row("-", e) for e in item.against]


def evidence_row(sign: str, piece: Evidence) -> tuple[str, ...]:
    """Return one piece of evidence by the columns of `EVIDENCE`."""
    where = str(piece.scope) if piece.scope is not None else ""
    expected = "" if piece.expected is None else number(piece.expected, piece.unit)
    basis = piece.basis + (f", {piece.window_s:g} s" if piece.window_s else "")
    return sign, piece.signal, where, number(piece.observed, piece.unit), expected, basis


def table(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return rows as aligned lines of at most `width` characters; long cells are wrapped inside their column.

    Columns that are empty throughout are left out.
    """
    shown = [i for i in range(len(EVIDENCE)) if i == 0 or any(row[i] for row in rows)]
    needed = [max([len(EVIDENCE[i]), *(len(row[i]) for row in rows)]) for i in shown]
    room = width - 2 - _GAP * (len(shown) - 1)
    # Prose gives way before names do: a name that is cut in two can no longer be searched for.
    prose = [
        min(n, _PROSE) if EVIDENCE[i] in ("observed", "expected") else n for i, n in zip(shown, needed, strict=True)
    ]
    least = [min(n, _LEAST[i]) for i, n in zip(shown, needed, strict=True)]
    widths = _fit(_fit(needed, prose, room), least, room)
    lines = []
    for row in (EVIDENCE, *rows):
        cells = [
            textwrap.wrap(row[i], w, break_long_words=True, break_on_hyphens=False) or [""]
            for i, w in zip(shown, widths, strict=True)
        ]
        for n in range(max(map(len, cells))):
            parts = [(c[n] if n < len(c) else "").ljust(w) for c, w in zip(cells, widths, strict=True)]
            lines.append("  " + (" " * _GAP).join(parts).rstrip())
    return lines


def _fit(needed: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return column widths that fit into `room`: the widest column gives way first, none below its least width."""
    widths = list(needed)
    while sum(widths) > room:
        free = [i for i, w in enumerate(widths) if w > least[i]]
        if not free:
            break
        widest = max(free, key=lambda i: widths[i])
        widths[widest] -= 1
    return widths
