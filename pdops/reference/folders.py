"""Base folders of the user."""

from __future__ import annotations

import os
from pathlib import Path


def user_folder(variable: str, default: str) -> Path:
    """Return a base folder of the user: that of the variable, else a path below the user's home.

    A relative path in the variable counts as none, as the XDG Base Directory Specification wants: the same deployment
    would be another one from every folder.
    """
    chosen = Path(os.environ.get(variable, ""))
    return chosen if chosen.is_absolute() else Path.home() / default
