"""The catalog's nouns. The data lives in `catalog/data/*.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pdops.model.report import Layer
from pdops.model.series import Kind

Verified = Literal[
    "fixture", "run", "source", "repo", "binary", "knowledge", "unverified", "absence checked", "third-party docs"
]
"""How sure we are that an engine exports a metric: seen on a recorded page; seen in a run; read in the released package;
read in a repository snapshot; a string in a shipped binary; not checked; checked to be gone; told by somebody else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySpec:
    """Whose signal a series is: a fixed `scope`, the worker named by a label, or the pair named by two labels.

    With none of them it belongs to the worker that was scraped.
    """

    scope: Literal["client", "router"] | None = None
    worker: str | None = None
    pair: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """One place where an engine may give a signal.

    Candidates are ordered, the first one present wins; they are never summed. `metric` is the exposition name as
    scraped, `_total` included, for a histogram without its suffix. `match` filters label values by full-match regular
    expressions, `take` picks a part of a histogram for a counter signal, multiplying by `scale` reaches the canonical
    unit, `key` says whose signal it is when not the scraped worker's. `age` marks a series that is a Unix time, where the
    signal is how long ago that was and 0 stays 0. A source with `derived` has no series of its own.
    """

    metric: str | None = None
    derived: str | None = None
    kind: Literal["gauge", "counter", "histogram", "summary"] = "gauge"
    take: Literal["sum", "count"] | None = None
    match: Mapping[str, str] = field(default_factory=dict)
    key: KeySpec = KeySpec()
    scale: float = 1.0
    age: bool = False
    role: str | None = None
    since: str | None = None
    until: str | None = None
    verified: Verified = "unverified"
    ref: str | None = None
    reason: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSpec:
    """One canonical signal: `sources` by engine, `absent` says per engine why there is none."""

    name: str
    unit: str
    kind: Kind
    scope: str
    meaning: str
    sources: Mapping[str, tuple[SourceSpec, ...]] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """One kind of page: where it is served and how it is switched on."""

    path: str = "/metrics"
    version: str = ""
    port: str = ""
    enable: str = ""
    role_label: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseSpec:
    """One cause a diagnosis may name, with its usual layer."""

    layer: Layer
    meaning: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything pdops knows by name."""

    signals: Mapping[str, SignalSpec]
    engines: Mapping[str, EngineSpec]
    causes: Mapping[str, CauseSpec]
