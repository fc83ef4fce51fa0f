"""Judge the rules: parsed and linted always, by promtool where it is installed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pdops.catalog.load import catalog
from pdops.grafana.promlint import known, lint
from pdops.grafana.rules import build, cases, promtool
from pdops.grafana.rules.types import Alert
from pdops.sources.schemas import DIALECT

SCHEMA = "pdops/rules-check/v1"
_TEMPLATE = re.compile(r"\$labels\.(\w+)")


@dataclass(frozen=True, slots=True)
class Checked:
    """What was looked at, and what is wrong; `skipped` says what could not be done and why."""

    recordings: int
    alerts: int
    cases: int
    problems: tuple[str, ...]
    skipped: tuple[str, ...]


def schema() -> dict[str, Any]:
    """Return the JSON Schema of `pdops rules check --json`."""
    count, texts = {"type": "integer", "minimum": 0}, {"type": "array", "items": {"type": "string"}}
    shown = {"recordings": count, "alerts": count, "cases": count, "problems": texts, "skipped": texts}
    return {
        "$schema": DIALECT,
        "title": "pdops rules check --json",
        "type": "object",
        "properties": {"schema": {"const": SCHEMA}, **shown},
        "required": ["schema", *shown],
        "additionalProperties": False,
    }


def check(*, tests: bool = True) -> Checked:
    """Judge every rule.

    Args:
        tests: whether promtool runs the unit tests as well.

    Raises:
        UsageError: promql-parser is not installed.
    """
    found, recordings = build.alerts(), build.recorded()
    problems = [*linted(), *(p for alert in found for p in _said(alert))]
    skipped = []
    program = promtool.promtool()
    if program is None:
        skipped.append("promtool is not installed: neither its own check nor the unit tests were run")
    else:
        said = [promtool.check(program, build.documents()), promtool.test(program, found) if tests else None]
        problems += [text for text in said if text is not None]
        if not tests:
            skipped.append("the unit tests were not asked for")
    count = sum(len(cases.cases(alert)) for alert in found)
    return Checked(len(recordings), len(found), count, tuple(problems), tuple(skipped))


def linted() -> list[str]:
    """Return what the lint says against any expression, with the name of its rule."""
    names = known({rule.name: rule.keeps for rule in build.recorded()})
    rules = [(r.name, r.expr) for r in build.recorded()] + [(a.id, a.expr) for a in build.alerts()]
    return [f"{name}: {said}" for name, expr in rules for said in lint(expr, names)]


def _said(alert: Alert) -> list[str]:
    """Return what is wrong with the labels and texts of an alert."""
    wrong = []
    made = {*alert.keeps, *alert.labels, "severity", *(("pool",) if alert.pool else ())}
    for text in (alert.summary, alert.do):
        wrong += [f"{alert.id}: no label {name} in its result" for name in _TEMPLATE.findall(text) if name not in made]
    if "pool" not in made:
        wrong.append(f"{alert.id}: neither its result nor its labels say which pool")
    if alert.pool is not None and "pool" in alert.keeps:
        wrong.append(f"{alert.id}: a fixed pool hides the pool of its result")
    told = (alert.cause is not None) + (alert.symptom is not None) + ("cause" in alert.keeps)
    if told != 1:
        wrong.append(f"{alert.id}: it must tell a cause or a symptom, and only one")
    if alert.cause is not None and alert.cause not in catalog().causes:
        wrong.append(f"{alert.id}: no cause {alert.cause} in the catalog")
    return wrong
