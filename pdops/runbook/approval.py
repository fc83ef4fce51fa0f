"""Who says yes."""

from __future__ import annotations

from pdops.errors import RefusedError
from pdops.runbook.journal import Journal, Run
from pdops.runbook.model import Risk
from pdops.runbook.states import RunState


def approve(journal: Journal, run_id: str, actor: str) -> Run:
    """Approve a run; from disruptive upwards by somebody else than who asked for it.

    Raises:
        JournalError: there is no such run.
        RefusedError: it waits for no approval, its plan is too old, or the same person asked for it.
    """
    run = journal.run(run_id)
    with journal.transaction() as tx:
        now = tx.run(run.id)
        assert now is not None, "runs are never removed"
        if now.state is not RunState.PLANNED:
            raise RefusedError(
                "the run waits for no approval",
                where=run.id,
                why=f"it is {now.state}",
                hint="`pdops runbook log` shows it",
            )
        if tx.now_s > float(now.plan["expires_at_s"]):
            raise RefusedError("the plan is too old", where=run.id, hint="make a new one")
        if now.risk != Risk.SAFE and actor == now.requester:
            raise RefusedError(
                f"a {now.risk} run is approved by somebody else than who asked for it",
                where=run.id, why=f"{actor} asked for it", hint="ask a colleague to approve it",
            )  # fmt: skip
        tx.append("approved", run.id, actor=actor)
    return journal.run(run.id)
