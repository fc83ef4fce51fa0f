"""Lines as Textual strips, in colours of the terminal's own palette."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.strip import Strip

from pdops_tui.draw.line import Line, fill
from pdops_tui.models.format import Style
from pdops_tui.models.text import to_ascii

PALETTE: dict[Style, RichStyle] = {
    "": RichStyle(),
    "title": RichStyle(bold=True),
    "good": RichStyle(color="green"),
    "warn": RichStyle(color="yellow", bold=True),
    "bad": RichStyle(color="red", bold=True),
    "dim": RichStyle(color="bright_black"),
    "unknown": RichStyle(color="magenta"),
    "key": RichStyle(color="cyan"),
    "cursor": RichStyle(reverse=True),
}
"""Named colours only: the terminal's theme decides the shades, dark or light, and no true colour is needed."""


CURSOR = PALETTE["cursor"]


def strip(line: Line, width: int, *, ascii: bool) -> Strip:
    """Return a line in exactly `width` cells.

    Segments take text as it is: markup in it has no meaning.
    """
    segments = [Segment(to_ascii(text) if ascii else text, PALETTE[style]) for text, style in fill(line, width)]
    return Strip(segments, width)
