"""Make text from outside safe to put on a terminal, and measure and cut it in cells."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

UNSAFE = "\ufffd"
"""Stands for a character that is not shown."""
MAX_CHARS = 4_096
"""Longer text is cut before anything else is done with it."""

_SPELLED = str.maketrans({"≥": ">=", "≤": "<=", "\t": " ", "\n": " ", "\r": " ", "\u00a0": " "})
_BAD_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Mn", "Me", "Mc"})
_BAD_BIDI = frozenset({"R", "AL", "RLE", "LRE", "RLO", "LRO", "PDF", "RLI", "LRI", "FSI", "PDI"})
_BAD_RANGES = (
    (0x1160, 0x11FF),
    (0x2630, 0x2637),
    (0x268A, 0x268F),
    (0x3164, 0x3164),
    (0x4DC0, 0x4DFF),
    (0xD7B0, 0xD7FF),
    (0xFFA0, 0xFFDC),
    (0x1D300, 0x1D37F),
    (0x1F1E6, 0x1F1FF),
    (0x1F3FB, 0x1F3FF),
)
"""Characters whose width depends on their neighbours or on the terminal."""


def clean(text: str, limit: int = MAX_CHARS) -> str:
    """Return text of printable characters of a known width, on one line.

    Control characters, escape sequences' ESC, zero-width and combining characters and text that runs right to left
    become the replacement character: each of them can move what is drawn after it.
    """
    if len(text) > limit:
        text = text[:limit]
    if text.isascii() and text.isprintable():
        return text
    spelled = unicodedata.normalize("NFC", text.translate(_SPELLED))
    return "".join(c if _width(c) else UNSAFE for c in spelled)


@lru_cache(maxsize=4_096)
def _width(char: str) -> int:
    """Return the cells of one character, 0 for one that is not shown."""
    if " " <= char <= "~":
        return 1
    code = ord(char)
    if unicodedata.category(char) in _BAD_CATEGORIES or unicodedata.bidirectional(char) in _BAD_BIDI:
        return 0
    if any(first <= code <= last for first, last in _BAD_RANGES):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cells(text: str) -> int:
    """Return how many cells a cleaned text takes."""
    if text.isascii():
        return len(text)
    return sum(_width(c) or 1 for c in text)


def clip(text: str, width: int, ellipsis: str = "…") -> str:
    """Return the text, or its beginning and an ellipsis, in at most `width` cells."""
    if cells(text) <= width:
        return text
    if width <= 0:
        return ""
    return take(text, width - 1) + ellipsis


def clip_middle(text: str, width: int, ellipsis: str = "…") -> str:
    """Return the text without its middle, in at most `width` cells: the ends tell one worker from another."""
    if cells(text) <= width:
        return text
    if width <= 2:
        return clip(text, width, ellipsis)
    tail = take(text[::-1], (width - 1) // 2)[::-1]
    return take(text, width - 1 - cells(tail)) + ellipsis + tail


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return the text filled with blanks to `width` cells, on its left when `right` aligned."""
    blanks = " " * max(0, width - cells(text))
    return blanks + text if right else text + blanks


def take(text: str, width: int) -> str:
    """Return the longest beginning of a text that fits in `width` cells."""
    used = 0
    for index, char in enumerate(text):
        used += _width(char) or 1
        if used > width:
            return text[:index]
    return text


def to_ascii(text: str) -> str:
    """Return the text with every other character replaced by ASCII of the same width in cells.

    What the screen itself draws never becomes `?`, which says that something is not known.
    """
    if text.isascii():
        return text
    return "".join(c if c.isascii() else _ASCII.get(c, "?" * (_width(c) or 1)) for c in text)


_ASCII = {
    "─": "-",
    "═": "=",
    "│": "|",
    "█": "#",
    "▓": "=",
    "▒": "+",
    "░": ".",
    "…": "~",
    "·": "*",
    "×": "x",
    "–": "-",
    "—": "-",
    "▲": "^",
    "┄": ".",
    "▼": "v",
    "→": ">",
    "‖": "=",
    "▶": ">",
    "▁": "_",
    "▂": ".",
    "▃": ":",
    "▄": ";",
    "▅": "=",
    "▆": "+",
    "▇": "*",
    "┤": "|",
    "╌": ".",
    **{
        chr(0x2800 + dots): ":" if dots & 0x1B and dots & 0xE4 else "'" if dots & 0x1B else "."
        for dots in range(1, 256)
    },
    "µ": "u",
}
