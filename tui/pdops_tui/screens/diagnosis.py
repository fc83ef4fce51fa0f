"""The diagnosis in full."""

from __future__ import annotations

from pdops_tui.draw.pages import trace_lines
from pdops_tui.draw.sheet import Draft, Sheet
from pdops_tui.screens.scene import Scene


def sheet(scene: Scene) -> Sheet:
    """Return everything that the report says."""
    out = Draft(scene.width)
    out.title("DIAGNOSIS, full trace")
    out.extend(trace_lines(scene.screen, scene.width))
    return out.sheet()
