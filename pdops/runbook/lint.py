"""What is likely a mistake in a runbook that loads: nothing here stops a run, everything here is worth a second look."""

from __future__ import annotations

from dataclasses import dataclass

from pdops.grafana.rules import pages
from pdops.runbook.actions import actions
from pdops.runbook.model import Risk, Runbook, Step

ENOUGH = 0.5
"""Confidence below which a diagnosis itself abstains."""


@dataclass(frozen=True, slots=True)
class Lint:
    """One remark: the place in the runbook, what is unusual, what to do."""

    where: str
    what: str
    hint: str


def lint(runbook: Runbook) -> tuple[Lint, ...]:
    """Return remarks in the order of the file."""
    return (*_triggers(runbook), *_risk(runbook), *_guards(runbook), *_steps(runbook))


def _triggers(runbook: Runbook) -> list[Lint]:
    found = []
    alerts = {entry.id for entry in pages.index()}
    for alert in runbook.triggers.alerts:
        if alert not in alerts:
            found.append(Lint("triggers.alerts", f"no shipped rule is named {alert}", "use the name your rules have"))
    trigger = runbook.triggers.diagnosis
    if trigger.min_confidence < ENOUGH:
        what = f"min_confidence {trigger.min_confidence:g} is below what a diagnosis commits itself at"
        found.append(Lint("triggers.diagnosis", what, f"use {ENOUGH:g} or more"))
    if runbook.triggers.alerts and not (trigger.causes or trigger.checks):
        what = "an alert may start it, and no cause says what the diagnosis must agree to"
        found.append(Lint("triggers", what, "name causes; an alert tells a symptom only"))
    return found


def _risk(runbook: Runbook) -> list[Lint]:
    worst = max((actions()[s.action].risk for s in runbook.steps), key=lambda r: r.rank)
    if worst.rank > runbook.risk.rank:
        return [Lint("risk", f"it says {runbook.risk}, and a step is {worst}", f"say risk: {worst}")]
    return []


def _guards(runbook: Runbook) -> list[Lint]:
    if not any(_changes(s) for s in runbook.steps):
        return []
    found = []
    names = {g.check for g in runbook.guards}
    if "data-fresh" not in names and not runbook.triggers.by_hand:
        found.append(Lint("guards", "it acts without asking whether data are about now", "add check: data-fresh"))
    scales = any(s.action.startswith("pool.scale") for s in runbook.steps)
    if scales and "own-replicas" not in names:
        found.append(
            Lint("guards", "it changes the size of a pool that somebody else may own", "add check: own-replicas")
        )
    if any(actions()[s.action].takes_out for s in runbook.steps) and "no-rollout" not in names and runbook.min_ready:
        found.append(Lint("guards", "it takes workers out of a pool that may be rolling", "add check: no-rollout"))
    last = [s for s in runbook.steps if _changes(s)][-1]
    if not runbook.success and not last.verify:
        found.append(Lint("success", "nothing says when it has worked", "add a check, such as symptom-gone"))
    return found


def _steps(runbook: Runbook) -> list[Lint]:
    found = []
    for step in runbook.steps:
        spec = actions()[step.action]
        if spec.risk is not Risk.SAFE and not step.verify:
            found.append(
                Lint(f"steps {step.id}", f"{step.action} is {spec.risk} and nothing verifies it", "add verify")
            )
    return found


def _changes(step: Step) -> bool:
    return actions()[step.action].needs_backend
