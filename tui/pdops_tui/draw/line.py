"""Lines of styled text, measured in cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pdops_tui.models.format import Style
from pdops_tui.models.text import cells, clip, take, to_ascii

Span = tuple[str, Style]
Line = tuple[Span, ...]

SGR: dict[Style, str] = {
    "title": "1",
    "good": "32",
    "warn": "1;33",
    "bad": "1;31",
    "dim": "2",
    "unknown": "35",
    "key": "36",
    "cursor": "7",
}
"""Select Graphic Rendition parameters of the sixteen-colour palette, so that a terminal's own theme decides the shades."""


def span(text: str, style: Style = "") -> Line:
    """Return a line of one span."""
    return ((text, style),) if text else ()


def width_of(line: Line) -> int:
    """Return the cells a line takes."""
    return sum(cells(text) for text, _ in line)


def cut(line: Line, width: int) -> Line:
    """Return the line in at most `width` cells, an ellipsis where something was left out."""
    if width_of(line) <= width:
        return line
    kept: list[Span] = []
    room = width
    for index, (text, style) in enumerate(line):
        size = cells(text)
        if size < room or (size == room and index == len(line) - 1):
            kept.append((text, style))
            room -= size
            continue
        kept.append((clip(text + " ", room), style))
        break
    return tuple(s for s in kept if s[0])


def fill(line: Line, width: int) -> Line:
    """Return the line in exactly `width` cells."""
    line = cut(line, width)
    missing = width - width_of(line)
    return (*line, (" " * missing, "")) if missing > 0 else line


def fit(parts: Sequence[tuple[int, Line]], width: int, gap: str = "  ") -> Line:
    """Return the parts in order, joined by a gap; those of the greatest first number are left out until all fit."""
    kept = [(drop, part) for drop, part in parts if part]
    while len(kept) > 1 and _joined_width(kept, gap) > width:
        worst = max(range(len(kept)), key=lambda i: (kept[i][0], i))
        del kept[worst]
    out: list[Span] = []
    for index, (_, part) in enumerate(kept):
        if index:
            out.append((gap, ""))
        out.extend(part)
    return cut(tuple(out), width)


def _joined_width(kept: Sequence[tuple[int, Line]], gap: str) -> int:
    return sum(width_of(part) for _, part in kept) + len(gap) * (len(kept) - 1)


def ends(left: Line, right: Line, width: int) -> Line:
    """Return the left part, blanks, and the right part; the left one is cut when both do not fit."""
    room = width - width_of(right)
    return (*fill(left, room), *right) if room > 0 else cut(right, width)


def rule(title: str, width: int, hint: str = "", *, focused: bool = False) -> Line:
    """Return a pane's title on a rule, with a hint at the right where there is room."""
    head = f"{'═' if focused else '─'} {clip(title, max(0, width - 4))} "
    tail = f" {hint} ─" if hint and cells(head) + len(hint) + 6 <= width else ""
    bar = ("═" if focused else "─") * max(0, width - cells(head) - cells(tail))
    return cut(((head, "title"), (bar, "title" if focused else "dim"), (tail, "dim")), width)


def wrap(text: str, width: int) -> list[str]:
    """Return the text on lines of at most `width` cells, broken at blanks, long words cut across lines."""
    if width <= 0:
        return [""]
    lines: list[str] = []
    current = ""
    for word in text.split(" "):
        joined = f"{current} {word}" if current else word
        if cells(joined) <= width:
            current = joined
            continue
        if current:
            lines.append(current)
        while cells(word) > width:
            # A single wide character may be wider than the line; it is taken all the same, or this would never end.
            head = take(word, width) or word[0]
            lines.append(head)
            word = word[len(head) :]
        current = word
    return [*lines, current] if current or not lines else lines


def plain(lines: Iterable[Line], *, ascii: bool = False, color: bool = False) -> str:
    """Return lines as text, trailing blanks removed, one newline at the end of each."""
    out = []
    for line in lines:
        spans = [(to_ascii(text) if ascii else text, style) for text, style in line]
        if not color:
            out.append("".join(text for text, _ in spans).rstrip())
            continue
        out.append("".join(f"\x1b[{SGR[style]}m{text}\x1b[0m" if style else text for text, style in spans).rstrip())
    return "".join(f"{line}\n" for line in out)
