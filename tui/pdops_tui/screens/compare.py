"""Several sources beside each other, for before and after."""

from __future__ import annotations

from pdops_tui.draw.line import Line, Span, span
from pdops_tui.draw.sheet import Draft, Sheet
from pdops_tui.models.compare import Comparison, compare
from pdops_tui.models.compare import Line as Compared
from pdops_tui.models.text import cells, clip, pad
from pdops_tui.screens.scene import Scene

_LABEL = 16
_CHANGE = 13
_LEAST = 12


def sheet(scene: Scene) -> Sheet:
    """Return the comparison of all sources of the session."""
    shown = scene.screen.snapshot.beside
    out = Draft(scene.width)
    if len(shown) < 2:
        out.title("COMPARE")
        out.add(span(" one source is open; give --replay or -c twice to compare two", "unknown"))
        return out.sheet()
    out.extend(compared_lines(compare(shown, scene.session), scene.width, number=scene.screen.snapshot.number))
    return out.sheet()


def compared_lines(found: Comparison, width: int, *, number: int | None = None) -> list[Line]:
    """Return a comparison as lines; sources that do not fit are counted.

    Args:
        found: what to draw.
        width: columns.
        number: the source the keys act on; its head is marked.
    """
    room = width - 1 - _LABEL - _CHANGE - 1
    fits = max(1, min(len(found.names), room // (_LEAST + 1)))
    each = room // fits - 1
    draft = Draft(width)
    left = len(found.names) - fits
    draft.title("COMPARE, change from the first to the last", f"{left} more not shown" if left else "")
    heads: list[Span] = [(" " + " " * _LABEL, "dim")]
    for index in range(fits):
        here = index == number
        name = clip(("> " if here else "") + found.names[index], each)
        heads.append((" " + pad(name, each), "title" if here else "dim"))
    draft.add((*heads, (" " + pad("CHANGE", _CHANGE), "dim")))
    for section in found.sections:
        draft.add(span(f" {section.title}", "title"))
        draft.extend(_line(line, fits, each) for line in section.lines)
    return draft.lines


def _line(line: Compared, fits: int, each: int) -> Line:
    out: list[Span] = [(f" {pad(clip(line.label, _LABEL), _LABEL)}", "dim")]
    for cell in line.cells[:fits]:
        mark = f" {cell.mark}" if cell.mark else ""
        out.append((" " + pad(clip(cell.text, each - cells(mark)) + mark, each), cell.style))
    return (*out, (f" {line.change.text}", line.change.style))
