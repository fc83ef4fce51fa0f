"""The screen as an SVG picture."""

from __future__ import annotations

import re
from typing import Any

from textual.app import App

_FONT_FACE = re.compile(r"@font-face\s*\{[^}]*\}")


def picture(app: App[Any], title: str = "pdops top") -> str:
    """Return what is on the screen; the picture names no font to be fetched, it uses the reader's own monospaced one."""
    return _FONT_FACE.sub("", app.export_screenshot(title=title))
