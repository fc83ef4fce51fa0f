"""The keys that move a cursor, the same wherever there is one."""

from __future__ import annotations

from textual.binding import Binding

CURSOR_KEYS = (
    Binding("up,k", "move(-1, 0)", show=False),
    Binding("down,j", "move(1, 0)", show=False),
    Binding("left,h", "move(0, -1)", show=False),
    Binding("right,l", "move(0, 1)", show=False),
    Binding("pageup", "page(-1)", show=False),
    Binding("pagedown", "page(1)", show=False),
    Binding("home,g", "edge(-1)", show=False),
    Binding("end,G", "edge(1)", show=False),
)
