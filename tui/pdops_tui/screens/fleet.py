"""Routers and KV stores."""

from __future__ import annotations

from pdops_tui.draw.panes import other_lines
from pdops_tui.draw.sheet import Draft, Sheet
from pdops_tui.screens.scene import Scene


def sheet(scene: Scene) -> Sheet:
    """Return a line for each router and store."""
    out = Draft(scene.width)
    out.title("ROUTERS AND KV STORES")
    out.extend(other_lines(scene.screen.others, scene.width))
    return out.sheet()
