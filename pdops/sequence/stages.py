"""Stages and their order, read from data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from importlib import resources
from typing import Annotated, Literal

import yaml
from pydantic import Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from pdops.errors import CatalogError

SCHEMA = "pdops/sequence/v1"
_HINT = "reinstall pdops: this file is part of it"


@checked(frozen=True, slots=True, kw_only=True, config={"extra": "forbid"})
class Stage:
    """One step. It is ready after `successes` good probes in a row, `interval_s` apart, once `min_age_s` old.

    `budget_s` bounds the whole wait. A stage that `degrade`s lets the rest go on without it.
    """

    id: str
    title: str
    after: tuple[str, ...]
    budget_s: Annotated[float, Field(gt=0)]
    successes: Annotated[int, Field(ge=1)] = 3
    interval_s: Annotated[float, Field(gt=0)] = 1.0
    min_age_s: Annotated[float, Field(ge=0)] = 0.0
    if_fails: Literal["stop", "degrade"] = "stop"


@dataclass(frozen=True, slots=True)
class Order:
    """Stages with their dependencies, in an order that respects them."""

    name: str
    stages: tuple[Stage, ...]

    def without(self, before: str, after: str) -> Order:
        """Return the order in which `after` no longer waits for `before`."""
        return Order(
            self.name,
            tuple(
                replace(s, after=tuple(a for a in s.after if a != before)) if s.id == after else s for s in self.stages
            ),
        )

    def get(self, stage_id: str) -> Stage:
        """Return a stage by its id; KeyError when there is none."""
        return {s.id: s for s in self.stages}[stage_id]


@lru_cache(maxsize=8)
def order(name: str) -> Order:
    """Return a shipped order: `cold-start` or `drain`.

    Raises:
        CatalogError: there is none of that name, or its file is not valid.
    """
    where = f"{name}.yaml"
    try:
        text = resources.files("pdops.sequence").joinpath("data", where).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CatalogError("no such order of stages", where=where, hint="cold-start and drain are shipped") from None
    return parse(text, where)


def parse(text: str, where: str) -> Order:
    """Read an order. See `order` for what is raised."""
    try:
        data = yaml.safe_load(text)
        if data["schema"] != SCHEMA:
            raise CatalogError("not an order of stages", where=where, why=f"expected schema {SCHEMA}", hint=_HINT)
        stages = TypeAdapter(tuple[Stage, ...]).validate_python(data["stages"])
        return Order(data["name"], _sorted(stages, where))
    except (yaml.YAMLError, ValidationError, KeyError, TypeError) as error:
        raise CatalogError("the order of stages cannot be used", where=where, why=str(error), hint=_HINT) from error


def _sorted(stages: Iterable[Stage], where: str) -> tuple[Stage, ...]:
    by_id = {s.id: s for s in stages}
    unknown = {a for s in by_id.values() for a in s.after} - by_id.keys()
    if unknown:
        raise CatalogError(
            "a stage waits for one that does not exist", where=where, why=", ".join(sorted(unknown)), hint=_HINT
        )
    try:
        return tuple(by_id[i] for i in TopologicalSorter({s.id: s.after for s in by_id.values()}).static_order())
    except CycleError as error:
        raise CatalogError(
            "stages wait for each other", where=where, why=" > ".join(error.args[1]), hint=_HINT
        ) from error
