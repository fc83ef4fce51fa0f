"""A case file as people write it, schema `pdops/case/v1`.

The outermost keys are fixed. Further inside, keys and names nobody knows are kept aside and told as warnings, since a
case is often written about an engine or a signal this release does not know.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from pdops.model.cluster import Role
from pdops.model.report import Layer, Verdict
from pdops.sources.inventory_model import LinksEntry, ModelEntry, SloEntry
from pdops.sources.inventory_names import Id, PoolName
from pdops.sources.validate import Strict, Text


class Loose(BaseModel):
    """Base of the inner parts: unknown keys are kept aside."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    def unknown_keys(self) -> list[str]:
        """Return the keys nobody knows."""
        return list(self.model_extra or ())


def _known(value: object) -> object:
    return None if isinstance(value, float) and math.isnan(value) else value


Value = Annotated[float | None, BeforeValidator(_known)]
Sample = tuple[float, Value]


class BeforeNow(Strict):
    """Constant at `before` until five minutes before now, and at `now` since; either may be left out."""

    before: Value = None
    now: Value = None


def _points_form(value: object) -> str:
    return "samples" if isinstance(value, list | tuple) else "before_now"


Points = Annotated[
    Annotated[tuple[Sample, ...], Tag("samples")] | Annotated[BeforeNow, Tag("before_now")],
    Discriminator(_points_form),
]
"""`[[t_s, value], …]` with ascending times, or `{before: x, now: y}`."""


class CaseWorker(Loose):
    """One worker; `pool` defaults to the role."""

    id: Id
    role: Role
    pool: PoolName | None = None
    url: Text | None = None
    engine: Text | None = None
    version: Text | None = None
    node: Text | None = None
    zone: Text | None = None


class CaseSlo(SloEntry, Loose):
    """What was promised."""

    model_config = ConfigDict(extra="allow")


class CaseCluster(Loose):
    """Who was there."""

    name: Text | None = None
    model: ModelEntry | None = None
    slo: CaseSlo = CaseSlo()
    links: LinksEntry = LinksEntry()
    workers: Annotated[tuple[CaseWorker, ...], Field(min_length=1)]


class CaseEvent(Loose):
    """Something that happened `t_s` seconds after now (negative = before)."""

    t_s: float
    kind: Text
    worker: Text | None = None
    pool: Text | None = None
    detail: Text | None = None
    revision: Text | None = None


class CaseLog(Loose):
    """One log line."""

    t_s: float = 0.0
    worker: Text
    line: str


class CaseProbe(Loose):
    """The outcome of a probe; `ok` is left out when it could not be judged. `value` in bytes/s for a bandwidth."""

    t_s: float = 0.0
    kind: Text
    ok: bool | None = None
    pair: Text | None = None
    worker: Text | None = None
    detail: Text | None = None
    value: Value = None


class Expect(Loose):
    """What a right diagnosis says; read by tests only."""

    verdict: Verdict | None = None
    layers_ok: tuple[Layer, ...] = ()
    causes: tuple[str, ...] = ()
    not_: Annotated[tuple[str, ...], Field(alias="not")] = ()
    next_any: tuple[str, ...] = ()


class Case(Strict):
    """What was seen of a cluster around one moment. Times are seconds relative to `at_s`, negative = before.

    `inferred` lists the signals, as `signal` or `signal@key`, whose numbers were made up to fit a report.
    """

    schema_: Annotated[Literal["pdops/case/v1"], Field(alias="schema")]
    id: Text
    source: str | None = None
    basis: Literal["reported", "inferred", "mixed", "recorded"] | None = None
    cluster: CaseCluster
    at_s: float = 0.0
    signals: dict[str, dict[str, Points]] = Field(default_factory=dict)
    events: tuple[CaseEvent, ...] = ()
    logs: tuple[CaseLog, ...] = ()
    facts: dict[str, dict[str, Any]] = Field(default_factory=dict)
    probes: tuple[CaseProbe, ...] = ()
    inferred: tuple[Text, ...] = ()
    expect: Expect | None = None

    def is_inferred(self, signal: str, key: str) -> bool:
        """Whether the numbers of a signal at a key were made up."""
        return self.basis == "inferred" or signal in self.inferred or f"{signal}@{key}" in self.inferred

    def parts(self) -> Iterator[tuple[str, Loose]]:
        """Yield every inner part that may hold unknown keys, with its name in the file."""
        yield "cluster", self.cluster
        yield "cluster.slo", self.cluster.slo
        for name, group in (
            ("cluster.workers", self.cluster.workers),
            ("events", self.events),
            ("logs", self.logs),
            ("probes", self.probes),
        ):
            for index, part in enumerate(group):
                yield f"{name}[{index}]", part
        if self.expect is not None:
            yield "expect", self.expect
