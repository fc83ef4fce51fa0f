"""Lines as Textual strips, in the palette of a theme."""

from __future__ import annotations

from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.strip import Strip

from pdops_tui.draw.line import Line, fill
from pdops_tui.models.format import Style
from pdops_tui.models.text import to_ascii

Palette = dict[Style, RichStyle]


@dataclass(frozen=True, slots=True)
class Theme:
    """A palette, and for whom it is. Named colours only: the terminal decides the shades, and no true colour is needed."""

    help: str
    palette: Palette


_TERMINAL: Palette = {
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
THEMES: dict[str, Theme] = {
    "terminal": Theme("the terminal's own sixteen colours", _TERMINAL),
    "light": Theme(
        "for a light background: no yellow text",
        {**_TERMINAL, "warn": RichStyle(color="magenta", bold=True), "unknown": RichStyle(color="blue", italic=True),
         "key": RichStyle(color="blue")},
    ),
    "blind": Theme(
        "no red beside green: blue is good, yellow a warning, reverse is wrong",
        {**_TERMINAL, "good": RichStyle(color="bright_blue"), "bad": RichStyle(color="yellow", bold=True, reverse=True),
         "unknown": RichStyle(italic=True, underline=True)},
    ),
    "contrast": Theme(
        "nothing grey: bold, underlined, reverse",
        {**_TERMINAL, "good": RichStyle(bold=True), "warn": RichStyle(bold=True, underline=True),
         "bad": RichStyle(bold=True, reverse=True), "dim": RichStyle(), "unknown": RichStyle(underline=True),
         "key": RichStyle(bold=True)},
    ),
    "mono": Theme(
        "no colour at all",
        {**_TERMINAL, "good": RichStyle(), "warn": RichStyle(bold=True), "bad": RichStyle(bold=True, reverse=True),
         "dim": RichStyle(dim=True), "unknown": RichStyle(italic=True), "key": RichStyle(underline=True)},
    ),
}  # fmt: skip
CURSOR = _TERMINAL["cursor"]
_palette = dict(_TERMINAL)


def use(theme: str) -> None:
    """Draw in a theme's palette from now on; an unknown name is the terminal's."""
    _palette.update(THEMES.get(theme, THEMES["terminal"]).palette)


def strip(line: Line, width: int, *, ascii: bool) -> Strip:
    """Return a line in exactly `width` cells.

    Segments take text as it is: markup in it has no meaning.
    """
    segments = [Segment(to_ascii(text) if ascii else text, _palette[style]) for text, style in fill(line, width)]
    return Strip(segments, width)
