"""Ask a run to end."""

from __future__ import annotations

from pdops.errors import JournalError
from pdops.runbook import allowance
from pdops.runbook.journal import Journal, Run
from pdops.runbook.states import RunState

_NOTHING_DONE = frozenset({RunState.PLANNED, RunState.APPROVED, RunState.GATING})


def untouched(run: Run) -> bool:
    """Return whether a run has not begun, so that ending it takes nothing back."""
    return run.state in _NOTHING_DONE or (run.state is RunState.HELD and run.before_hold in _NOTHING_DONE)


def ask(journal: Journal, run_id: str, actor: str, why: str) -> Run:
    """Write down that a run is to end, and end it where nothing has to be taken back.

    Raises:
        JournalError: there is no such run, or it has ended.
    """
    run = journal.run(run_id)
    with journal.transaction() as tx:
        now = tx.run(run.id)
        assert now is not None, "runs are never removed"
        if now.ended:
            raise JournalError(
                "the run has ended", where=run.id, why=f"it is {now.state}", hint="nothing is left to abort"
            )
        tx.append("abort", run.id, actor=actor)
        if untouched(now):
            tx.append("state", run.id, actor=actor, body={"to": RunState.ABORTED, "why": why})
        elif now.state is RunState.HELD and now.before_hold is RunState.ROLLING_BACK:
            body = {"to": RunState.FAILED, "why": f"taking it back was given up {why}"}
            tx.append("state", run.id, actor=actor, body=body)
            allowance.trip(tx, run.cluster)
    return journal.run(run.id)
