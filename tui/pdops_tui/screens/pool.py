"""PLACEHOLDER."""

from __future__ import annotations

from pdops_tui.draw.sheet import Draft, Sheet
from pdops_tui.screens.scene import Scene


def sheet(scene: Scene) -> Sheet:
    """Return the screen."""
    out = Draft(scene.width)
    return out.sheet()
