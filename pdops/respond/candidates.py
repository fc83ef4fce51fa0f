"""Which runbooks an alert may start, and which of them the diagnosis asks for first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pdops.errors import UsageError
from pdops.model.cluster import Cluster, Pair
from pdops.model.report import Hypothesis, Report, Scope
from pdops.runbook.lint import lint
from pdops.runbook.model import Mode, Risk, Runbook
from pdops.runbook.questions_report import matching

_NEEDED = frozenset({"guards", "triggers"})
"""Remarks about these are advice to people, and no choice for what an alert starts."""


def with_modes(runbooks: Iterable[Runbook], modes: Mapping[str, Mode]) -> dict[str, Runbook]:
    """Return runbooks by id, each in the mode that is asked for.

    Raises:
        UsageError: there is none of that id, or it may not be started by an alert in that mode.
    """
    found = {runbook.id: runbook for runbook in runbooks}
    for name, mode in modes.items():
        if name not in found:
            raise UsageError("no such runbook", where=name, hint="`pdops runbook list` lists them")
        if mode is Mode.AUTO and found[name].risk is not Risk.SAFE:
            why = f"it is {found[name].risk}"
            raise UsageError("runbook may not be automatic", where=name, why=why, hint=f"use {name}=approve")
        found[name] = found[name].model_copy(update={"mode": mode})
    for name, runbook in found.items():
        if runbook.mode is Mode.ADVISE or not runbook.triggers.alerts:
            continue
        for remark in lint(runbook):
            if remark.where in _NEEDED:
                raise UsageError(
                    "runbook may only advise", where=f"{name} {remark.where}", why=remark.what, hint=remark.hint
                )
    return found


def acting(runbooks: Mapping[str, Runbook]) -> tuple[str, ...]:
    """Return the runbooks that an alert may do more with than advise."""
    return tuple(sorted(n for n, r in runbooks.items() if r.mode is not Mode.ADVISE and r.triggers.alerts))


def candidates(alert: str, runbooks: Iterable[Runbook], report: Report) -> tuple[Runbook, ...]:
    """Return the runbooks of an alert: those the diagnosis proposes in its order, then the milder ones first."""
    proposed = [name for h in _leaders(report) for name in h.runbooks]

    def order(runbook: Runbook) -> tuple[int, int, str]:
        place = proposed.index(runbook.id) if runbook.id in proposed else len(proposed)
        return place, runbook.risk.rank, runbook.id

    return tuple(sorted((r for r in runbooks if alert in r.triggers.alerts), key=order))


def elsewhere(runbook: Runbook, report: Report, cluster: Cluster, worker: str | None) -> str | None:
    """Return why the diagnosis is about other workers than the alert, or None.

    An alert that names no worker of this cluster says nothing of that.
    """
    if worker is None or worker not in {w.id for w in cluster.workers}:
        return None
    trigger = runbook.triggers.diagnosis
    leaders = _leaders(report)
    found = [h for h in matching(report, runbook.id, trigger.causes, trigger.checks) if h in leaders]
    scopes = [scope for h in found for scope in h.scopes]
    if not scopes or any(_covers(scope, cluster, worker) for scope in scopes):
        return None
    return f"the alert is about {worker}, the diagnosis about {', '.join(map(str, scopes[:3]))}"


def _covers(scope: Scope, cluster: Cluster, worker: str) -> bool:
    if scope.kind == "worker":
        return scope.id == worker
    if scope.kind == "pair":
        pair = Pair.parse(scope.id)
        return worker in (pair.src, pair.dst)
    if scope.kind == "pool":
        return any(w.id == worker and scope.id in (w.pool, w.role) for w in cluster.workers)
    return True


def _leaders(report: Report) -> list[Hypothesis]:
    """Return the surest hypothesis of each fault."""
    first: dict[int, Hypothesis] = {}
    for hypothesis in report.hypotheses:
        first.setdefault(hypothesis.fault, hypothesis)
    return list(first.values())
