"""Write rendered files into a folder without touching what somebody else wrote there."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from pdops import __version__
from pdops.errors import UsageError

MANIFEST = ".pdops-rendered.json"
SCHEMA = "pdops/rendered/v1"
REPORT_SCHEMA = "pdops/render/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What happened to each file; `left` were written by an earlier rendering and are no longer part of it."""

    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    def document(self, folder: Path) -> dict[str, object]:
        """Return it in its published form; paths are below `folder`."""
        return {"schema": REPORT_SCHEMA, "folder": str(folder), **{k: list(v) for k, v in asdict(self).items()}}


def write(files: Mapping[str, str], folder: Path) -> Written:
    """Write files by their path below `folder`, all or, when one must not be replaced, none.

    A file that is there already is replaced only if an earlier rendering wrote it and nobody changed it since.

    Raises:
        UsageError: a file is not ours or was edited, a path leads out of the folder, or writing is not possible.
    """
    before = _read_manifest(folder)
    states = {path: _state(folder, path, text, before) for path, text in files.items()}
    foreign = sorted(path for path, state in states.items() if state == "foreign")
    if foreign:
        shown = ", ".join(foreign[:5]) + (f" and {len(foreign) - 5} more" if len(foreign) > 5 else "")
        raise UsageError(
            f"{len(foreign)} files would be overwritten that were not written by an earlier rendering, or were edited since",
            where=str(folder),
            why=shown,
            hint="take an empty folder, or move these files away; nothing was written",
        )
    left = tuple(sorted(p for p in before if p not in files and (folder / p).exists()))
    try:
        for path, text in files.items():
            if states[path] != "same":
                _replace(folder / path, text)
        hashes = {p: _hash(t.encode()) for p, t in files.items()} | {p: before[p] for p in left}
        content = {"schema": SCHEMA, "pdops": __version__, "files": dict(sorted(hashes.items()))}
        _replace(folder / MANIFEST, json.dumps(content, indent=2) + "\n")
    except OSError as error:
        raise UsageError(
            "rendered files cannot be written",
            where=str(error.filename or folder),
            why=error.strerror or str(error),
            hint="give a folder you may write to; what was written so far is complete and may be rendered over",
        ) from error
    by = {s: tuple(sorted(p for p, state in states.items() if state == s)) for s in ("new", "changed", "same")}
    return Written(**by, left=left)


def _state(folder: Path, path: str, text: str, before: Mapping[str, str]) -> str:
    _below(folder, path)
    target = folder / path
    if target.is_symlink() or (target.exists() and not target.is_file()):
        return "foreign"
    if not target.exists():
        return "new"
    try:
        found = target.read_bytes()
    except OSError:
        return "foreign"
    if found == text.encode():
        return "same"
    return "changed" if before.get(path) == _hash(found) else "foreign"


def _below(folder: Path, path: str) -> None:
    parts = PurePosixPath(path)
    inside = (folder / path).parent.resolve().is_relative_to(folder.resolve())
    if parts.is_absolute() or ".." in parts.parts or path == MANIFEST or not inside:
        raise UsageError("a rendered file would lie outside its folder", where=str(folder / path), hint="take another")


def _read_manifest(folder: Path) -> dict[str, str]:
    if folder.exists() and not folder.is_dir():
        raise UsageError("not a folder", where=str(folder), hint="name a folder to render into")
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            raise ValueError(f"schema is {content['schema']!r}, expected {SCHEMA!r}")
        return {str(path): str(digest) for path, digest in content["files"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            "cannot tell which files an earlier rendering wrote",
            where=str(folder / MANIFEST),
            why=str(error),
            hint="take an empty folder",
        ) from error


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        # Containers run as other users and must be able to read what is mounted.
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
