"""The nouns of rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from pdops.model.report import Symptom

Severity = Literal["critical", "warning", "info", "none"]
"""critical pages somebody, warning is a ticket, info only explains others, none is for the watchdog."""
Value = float | str
"""Of a test's input series: a counter grows by so much a second, a gauge stands at it; text is promtool's own notation."""
Input = Value | tuple[Value, Value]
"""One value, or two: just below the threshold, and at it."""

CLUSTER = ("cluster", "model")
WORKER = (*CLUSTER, "role", "pool", "worker")
POOL = (*CLUSTER, "role", "pool")
PAIR = (*CLUSTER, "src", "dst")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One recording rule: `name` is LEVEL:METRIC:OPERATION, `keeps` the labels of its result."""

    name: str
    expr: str
    keeps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert, with what its tests need.

    Args:
        name: PDName; several alerts may share it and then differ in `labels`.
        expr: PromQL over exported families and recorded names.
        keeps: labels of the expression's result; only these and `labels` may be used in annotations.
        for_: how long it must hold, as Prometheus writes durations.
        severity: how soon a person must look.
        summary: one line, with label templates.
        do: what to do, and what not to.
        check: id of the check whose page explains it; None when the alert has a page of its own.
        cause: what is suspected, a name of the catalog; or
        symptom: what is seen.
        pool: whose pool, where the result does not keep the label.
        board: dashboard that shows it, without the prefix of its uid.
        labels: further fixed labels.
        inputs: series of the tests, see `Input`.
        names: values of `keeps` that the firing alert must carry, from `inputs`.
        optional: inputs without which it fires just as well.
        horizon_m: minutes after which tests look; 0 takes the windows of the expression.
        more: further situations of the tests by title: their series, and whether the alert fires.
        step_s: seconds between samples of the tests; text patterns count in these.
        absence: it fires because series are missing, so the tests remove them to make it fire.
    """

    name: str
    expr: str
    keeps: tuple[str, ...] = WORKER
    for_: str = "5m"
    severity: Severity = "warning"
    summary: str
    do: str
    check: str | None = None
    cause: str | None = None
    symptom: Symptom | None = None
    pool: str | None = None
    board: str = "overview"
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    inputs: Mapping[str, Input] = field(default_factory=lambda: MappingProxyType({}))
    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    optional: frozenset[str] = frozenset()
    horizon_m: int = 0
    more: Mapping[str, tuple[Mapping[str, Value], bool]] = field(default_factory=lambda: MappingProxyType({}))
    step_s: int = 60
    absence: bool = False

    @property
    def id(self) -> str:
        """Name with the fixed labels that tell it from others of the same name."""
        return "-".join((self.name, *self.labels.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rules that are evaluated together, every `interval_s` seconds (None: as the server is set)."""

    name: str
    recordings: tuple[Recording, ...] = ()
    alerts: tuple[Alert, ...] = ()
    interval_s: int | None = None
