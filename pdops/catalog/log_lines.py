"""Lines that engines, transports, stores and routers log, and what each of them means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, TypeAdapter, ValidationError

from pdops.catalog.load import catalog
from pdops.errors import CatalogError
from pdops.model.report import Layer

SCHEMA = "pdops/log-lines/v1"
LONGEST = 4096
"""Characters of a line that are looked at; what tells one error from another stands at its start."""
_FILE = "log_lines.yaml"

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _folded(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(text.casefold() for text in texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSpec:
    """One kind of line.

    `contains` are texts that must stand in the line in this order, case aside. `cause` is what the line tells of, None
    when it is no sign of a fault; `also` are others it may tell of. A `consequence` shows that something is wrong
    elsewhere and weighs little. `group` is the group of evidence it votes in, so that a line and the counter of the same
    event have one vote together. `seen_in` is the engine or library with the version it was seen in as far as that is
    known, `source` where, `fix` what usually ends it.
    """

    id: str
    contains: Annotated[tuple[str, ...], BeforeValidator(_listed)]
    component: str
    cause: str | None
    layer: Layer
    meaning: str
    first_check: str
    fix: str = ""
    seen_in: str = ""
    source: str = ""
    also: tuple[str, ...] = ()
    weight: Literal["decisive", "strong", "moderate"] = "strong"
    consequence: bool = False
    group: str = "log"
    runbooks: tuple[str, ...] = ()

    @property
    def causes(self) -> tuple[str, ...]:
        """Every cause it may tell of, the likeliest first."""
        return self.also if self.cause is None else (self.cause, *self.also)

    def matches(self, folded: str) -> bool:
        """Whether a case-folded line is of this kind; time grows with the line's length only."""
        at = 0
        for text in _folded(self.contains):
            found = folded.find(text, at)
            if found < 0:
                return False
            at = found + len(text)
        return True


@lru_cache(maxsize=1)
def log_lines() -> tuple[LineSpec, ...]:
    """Return the shipped lines, in file order.

    Raises:
        CatalogError: the file does not parse, an entry is not valid, or it names a cause that does not exist.
    """
    text = resources.files("pdops.catalog").joinpath("data", _FILE).read_text(encoding="utf-8")
    return parse(text)


def parse(text: str, where: str = _FILE) -> tuple[LineSpec, ...]:
    """Read a table of lines. See `log_lines` for what is raised."""
    try:
        data = yaml.load(text, Loader=_Loader)  # noqa: S506  the loader is the safe one, in C where available
    except yaml.YAMLError as error:
        raise CatalogError("catalog file is not YAML", where=where, why=str(error), hint="reinstall pdops") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise CatalogError(
            "catalog file has the wrong schema", where=where, why=f"expected {SCHEMA}", hint="reinstall pdops"
        )
    try:
        specs = TypeAdapter(tuple[LineSpec, ...]).validate_python(data.get("lines"), extra="forbid")
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise CatalogError(
            "catalog entry is not valid", where=f"{where} at {place}", why=first["msg"], hint="correct the entry"
        ) from error
    seen: set[str] = set()
    for spec in specs:
        problem = _problem(spec, seen)
        if problem:
            raise CatalogError("log line cannot be used", where=spec.id, why=problem, hint="correct the entry")
        seen.add(spec.id)
    return specs


def _problem(spec: LineSpec, seen: set[str]) -> str:
    if spec.id in seen:
        return "it is defined twice"
    if not spec.contains or min(len(text) for text in spec.contains) < 4:
        return "a text of fewer than four letters is in too many lines"
    unheard = [cause for cause in spec.causes if cause not in catalog().causes]
    return f"unknown cause {', '.join(unheard)}" if unheard else ""


@lru_cache(maxsize=4096)
def recognise(line: str) -> tuple[LineSpec, ...]:
    """Return the kinds a line is of, in file order; the same line is read once."""
    folded = line[:LONGEST].casefold()
    return tuple(spec for spec in log_lines() if spec.matches(folded))
