"""Versions that are known to misbehave, alone or together, and what they do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Literal

import yaml
from pydantic import TypeAdapter, ValidationError

from pdops.catalog.load import catalog
from pdops.errors import CatalogError

SCHEMA = "pdops/known-bad/v1"
_FILE = "known_bad.yaml"
_VERSION = re.compile(r"v?(\d{1,9}(?:\.\d{1,9})*)(.*)", re.DOTALL)
_PRE = re.compile(r"[-._]?(?:a|b|c|rc|alpha|beta|pre|dev)", re.IGNORECASE)
_CLAUSE = re.compile(r"(==|>=|<=|<|>)\s*(v?\d[\w.]*)")

Release = tuple[tuple[int, ...], int]
"""Numbers without trailing zeros, then 0 for a pre-release and 1 for a release, so that both compare in order."""

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBad:
    """One entry.

    `versions` are ranges by component, such as `>=0.25.0,<0.25.2`; all must hold. `backend` and `where` narrow it: the
    first by a backend that must be in use, the second in words, so that what is found is only a warning. `evidence` says
    how well it is founded.
    """

    id: str
    versions: Mapping[str, str]
    cause: str
    what: str
    fix: str
    source: str
    evidence: Literal["fixed", "confirmed", "reported"]
    backend: str | None = None
    where: str | None = None

    def covers(self, component: str, version: str) -> bool | None:
        """Whether a version is in this entry's range for a component; None when it cannot be compared."""
        mine = release(version)
        return None if mine is None else _in(mine, self.versions[component])


def release(version: str) -> Release | None:
    """Return a version in a form that compares, or None when it does not start with a number.

    What a build appends (`+cu130`, `.post1`) is left out.
    """
    found = _VERSION.fullmatch(version.strip())
    if found is None:
        return None
    numbers = [int(part) for part in found[1].split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), 0 if _PRE.match(found[2]) else 1


def _in(mine: Release, spec: str) -> bool:
    for operator, text in _CLAUSE.findall(spec):
        other = release(text)
        assert other is not None
        order = (mine > other) - (mine < other)
        holds = {"==": order == 0, ">=": order >= 0, "<=": order <= 0, "<": order < 0, ">": order > 0}
        if not holds[operator]:
            return False
    return True


@lru_cache(maxsize=1)
def known_bad() -> tuple[KnownBad, ...]:
    """Return the shipped entries, in file order.

    Raises:
        CatalogError: the file does not parse, an entry is not valid, or it names a cause that does not exist.
    """
    return parse(resources.files("pdops.catalog").joinpath("data", _FILE).read_text(encoding="utf-8"))


def parse(text: str, where: str = _FILE) -> tuple[KnownBad, ...]:
    """Read a list of known-bad versions. See `known_bad` for what is raised."""
    try:
        data: Any = yaml.load(text, Loader=_Loader)  # noqa: S506  the loader is the safe one, in C where available
    except yaml.YAMLError as error:
        raise CatalogError("catalog file is not YAML", where=where, why=str(error), hint="reinstall pdops") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise CatalogError(
            "catalog file has the wrong schema", where=where, why=f"expected {SCHEMA}", hint="reinstall pdops"
        )
    try:
        entries = TypeAdapter(tuple[KnownBad, ...]).validate_python(data.get("known_bad"), extra="forbid")
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise CatalogError(
            "catalog entry is not valid", where=f"{where} at {place}", why=first["msg"], hint="correct the entry"
        ) from error
    seen: set[str] = set()
    for entry in entries:
        problem = _problem(entry, seen)
        if problem:
            raise CatalogError("known-bad entry cannot be used", where=entry.id, why=problem, hint="correct the entry")
        seen.add(entry.id)
    return entries


def _problem(entry: KnownBad, seen: set[str]) -> str:
    if entry.id in seen:
        return "it is defined twice"
    if entry.cause not in catalog().causes:
        return f"unknown cause {entry.cause}"
    if not entry.versions:
        return "it names no version"
    for component, spec in entry.versions.items():
        clauses = [clause.strip() for clause in spec.split(",")]
        if not all(_CLAUSE.fullmatch(clause) for clause in clauses):
            return f"{component}: {spec!r} is no range such as >=1.2,<1.3"
    return ""
