"""The generated files: where they lie, whether they are what the data says, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from pdops.errors import UsageError
from pdops.grafana.rules.build import Links, documents


def place() -> Path:
    """Return the folder of the generated files as it is installed."""
    return Path(str(resources.files("pdops_dashboards")))


def drift(folder: Path, links: Links | None = None) -> tuple[str, ...]:
    """Return the names of files that are missing, differ from the data, or are left over from earlier data."""
    wanted = documents(links)
    there = {path.name for path in folder.glob("rules-*.yaml")} if folder.is_dir() else set()
    return tuple(sorted({n for n, text in wanted.items() if _read(folder / n) != text} | (there - set(wanted))))


def write(folder: Path, links: Links | None = None) -> Mapping[str, bool]:
    """Write the files and return, by name, whether each changed.

    Raises:
        UsageError: the folder cannot be written.
    """
    changed = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in documents(links).items():
            changed[name] = _read(folder / name) != text
            if changed[name]:
                (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            "rules cannot be written",
            where=str(folder),
            why=error.strerror or str(error),
            hint="choose another folder with -o",
        ) from error
    return changed


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
