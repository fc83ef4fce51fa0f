"""Whether a run may begin now: freeze, locks of others, cool-down, and budget. All of it lasts over restarts."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pdops.runbook import locks
from pdops.runbook.journal import Transaction
from pdops.runbook.plan import Asked, Plan

HOUR_S = 3600.0
CLUSTER_BUDGET = 3
"""Runs that start in one cluster within an hour, of all runbooks. A remedy that is needed more often than that does not
remedy, and automation that repeats itself quickly has taken whole services down."""
BREAKER = 2
"""Runs of a cluster that failed or were rolled back within an hour, after which it is frozen until a person looks."""


def denied(tx: Transaction, plan: Plan, run: str, pools: Mapping[str, str]) -> str | None:
    """Return why a run may not begin now, or None.

    A clock that was set back makes it wait longer, never shorter.

    Args:
        tx: the transaction in which it begins.
        plan: what is to begin.
        run: its id.
        pools: worker id to pool.
    """
    if why := tx.frozen(plan.cluster):
        return why
    mine = locks.wanted(plan)
    for scope, other in sorted(tx.held(plan.cluster, but=run).items()):
        if locks.overlap(mine, [scope], pools):
            return f"run {other} has {scope}"
    past = tx.db.execute(
        "SELECT run, runbook, locks, cooldown_s, started_at_s, ended_at_s FROM budgets WHERE cluster=? AND run<>?",
        (plan.cluster, run),
    ).fetchall()
    for other, runbook, theirs, cooldown_s, _, ended_at_s in past:
        # A person may do something else at once; what an alert asks for waits for everything before it to settle.
        concerns = runbook == plan.runbook or plan.asked is Asked.ALERT
        if not concerns or ended_at_s is None or tx.now_s - ended_at_s >= cooldown_s:
            continue
        if locks.overlap(mine, json.loads(theirs), pools, but=locks.TOPOLOGY):
            left = cooldown_s - (tx.now_s - ended_at_s)
            return f"run {other} ended {tx.now_s - ended_at_s:.0f} s ago; its cool-down lasts {left:.0f} s more"
    recent = [row for row in past if tx.now_s - row[4] < HOUR_S]
    same = sum(row[1] == plan.runbook for row in recent)
    if same >= plan.budget_per_hour:
        return f"{same} runs of {plan.runbook} began within an hour; its budget is {plan.budget_per_hour}"
    if len(recent) >= CLUSTER_BUDGET:
        return f"{len(recent)} runs began in {plan.cluster} within an hour; the budget is {CLUSTER_BUDGET}"
    return None


def trip(tx: Transaction, cluster: str) -> None:
    """Freeze a cluster when too many of its runs went wrong within an hour."""
    bad = tx.db.execute(
        "SELECT count(*) FROM budgets WHERE cluster=? AND outcome IN ('failed', 'rolled-back') AND ? - ended_at_s < ?",
        (cluster, tx.now_s, HOUR_S),
    ).fetchone()[0]
    if bad >= BREAKER and tx.frozen(cluster) is None:
        tx.append("froze", actor="pdops", body={"scope": cluster, "why": f"{bad} runs went wrong within an hour"})
