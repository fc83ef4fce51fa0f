"""The held-out split is for a release: every run of it is written down with a hash of the rules that were judged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from pdops.errors import UsageError

SCHEMA = "pdops/heldout-runs/v1"
DEFAULT = Path("docs/measured/heldout-runs.yaml")
_RULES = (("pdops.diagnose", ("",)), ("pdops.catalog", ("", "data")), ("pdops.stats", ("",)), ("pdops.history", ("",)))
_DIAGNOSE_BELOW = ("checks", "data")
_PLAYED = (("pdops.bench", ("data",)), ("pdops.sim", ("",)))
_MADE_BY = (
    "clients.py", "episodes.py", "grid.py", "impact.py", "scenario.py", "sizes.py", "targets.py", "thin.py",
)  # fmt: skip
"""What of `pdops.bench` makes episodes of the written part and tells what clients felt; the rest asks and scores."""


def rules_hash() -> str:
    """Return a hash of everything that decides a diagnosis: checks, weighing, calibration, catalogs, readings."""
    below = tuple((package, (*f, *_DIAGNOSE_BELOW) if package == "pdops.diagnose" else f) for package, f in _RULES)
    return _hash(below)


def kinds_hash() -> str:
    """Return a hash of everything that is played: kinds, look-alikes, their parameters and making, and the simulator."""
    return _hash(_PLAYED, {"pdops.bench": _MADE_BY})


def _hash(
    rooms: Iterable[tuple[str, Iterable[str]]], single: Mapping[str, Iterable[str]] = MappingProxyType({})
) -> str:
    digest = hashlib.sha256()
    for package, names in single.items():
        for name in names:
            digest.update(f"{package}/{name}\0".encode())
            digest.update(resources.files(package).joinpath(name).read_bytes())
    for package, folders in rooms:
        for folder in folders:
            root = resources.files(package).joinpath(folder) if folder else resources.files(package)
            for item in _files(root):
                digest.update(f"{package}/{folder}/{item.name}\0".encode())
                digest.update(item.read_bytes())
    return digest.hexdigest()[:16]


def note(path: Path, entry: dict[str, Any]) -> None:
    """Add one run to the log.

    Raises:
        UsageError: the log cannot be read or written.
    """
    runs = earlier(path)
    body = {"schema": SCHEMA, "runs": [*runs, entry]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(body, sort_keys=False, width=120), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            "the log of held-out runs cannot be written",
            where=str(path),
            why=(error.strerror or str(error)).lower(),
            hint="name another place with --log; a run that is not logged does not count",
        ) from error


def earlier(path: Path) -> list[dict[str, Any]]:
    """Return the runs so far, the oldest first.

    Raises:
        UsageError: there is a log that cannot be read.
    """
    try:
        body = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(
            "the log of held-out runs cannot be read", where=str(path), why=str(error), hint="repair it by hand"
        ) from error
    if not isinstance(body, dict) or body.get("schema") != SCHEMA or not isinstance(body.get("runs"), list):
        raise UsageError(
            "the log of held-out runs cannot be read", where=str(path), why=f"it is not {SCHEMA}", hint="move it away"
        )
    return list(body["runs"])


def _files(root: Traversable) -> Iterator[Traversable]:
    if not root.is_dir():
        return
    for item in sorted(root.iterdir(), key=lambda entry: entry.name):
        if item.is_file() and item.name.endswith((".py", ".yaml")):
            yield item
