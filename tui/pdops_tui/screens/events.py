"""What happened, newest first."""

from __future__ import annotations

from pdops_tui.draw.panes import event_lines
from pdops_tui.draw.sheet import Draft, Sheet
from pdops_tui.screens.scene import Scene


def sheet(scene: Scene) -> Sheet:
    """Return events, probes and log lines."""
    out = Draft(scene.width)
    out.title("EVENTS")
    out.extend(event_lines(scene.screen.events, scene.width, None))
    return out.sheet()
