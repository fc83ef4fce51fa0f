"""What a person gets: a plan in a file, or why there is none."""

from __future__ import annotations

import os
from pathlib import Path

from pdops.errors import JournalError
from pdops.respond.episodes import Decision, Made
from pdops.runbook.encode import plan_to_json
from pdops.runbook.gates import Outcome
from pdops.runbook.make import AGREEMENT, NOTHING_ANSWERS
from pdops.runbook.plan import Plan

PLANS = "plans"
"""The folder beside the journal."""
KEPT = 100
"""Plans that are kept, the newest; each is too old to be carried out after ten minutes, and the journal has its effects."""


def write_plan(plan: Plan, folder: Path) -> Path:
    """Write a plan, for its owner only, as `pdops runbook apply` reads it, and return the file.

    Raises:
        JournalError: it cannot be written.
    """
    path = folder / f"{plan.id}.json"
    fresh = path.with_suffix(".new")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(plan_to_json(plan))
        fresh.replace(path)
        for old in sorted(folder.glob("*.json"), key=lambda p: p.stat().st_mtime_ns)[:-KEPT]:
            old.unlink(missing_ok=True)
    except OSError as error:
        hint = "check the space left and the permissions of the journal's folder"
        raise JournalError(
            "a plan cannot be written", where=str(folder), why=error.strerror or str(error), hint=hint
        ) from error
    return path


def turned_down(refused: list[tuple[Plan, bool]]) -> Decision:
    """Return why none of these plans, each with whether the diagnosis agrees, is followed."""
    for plan, agrees in refused:
        if agrees:
            return Decision(made=Made.REFUSED, why="; ".join(plan.reasons), runbook=plan.runbook)
    plan = refused[0][0]
    said = next(g for g in plan.guards if g.check in AGREEMENT)
    if said.outcome is Outcome.UNKNOWN:
        return Decision(made=Made.HELD, why=f"{said.observed}: {said.why}", runbook=plan.runbook)
    if said.check == NOTHING_ANSWERS:
        return Decision(made=Made.REFUSED, why=f"{said.observed}; {said.why}", runbook=plan.runbook)
    why = f"the diagnosis says {said.observed}; {said.why.removeprefix('the diagnosis disagrees: ')}"
    if others := ", ".join(p.runbook for p, _ in refused[1:]):
        why += f"; neither for {others}"
    return Decision(made=Made.DISAGREES, why=why, runbook=plan.runbook)
