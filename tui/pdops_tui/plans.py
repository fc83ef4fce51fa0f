"""What a runbook would do, planned from what is on the screen; nothing is touched."""

from __future__ import annotations

from pdops.errors import PdopsError, RunbookError
from pdops.model.report import Report
from pdops.model.view import View
from pdops.runbook.load import find_runbook
from pdops.runbook.make import BackendState, make_plan, without_backend
from pdops.runbook.plan import Plan


def preview(runbook: str, view: View, report: Report, backend: BackendState | None) -> Plan | PdopsError:
    """Return the plan of a shipped runbook as of the View, or the error that says why there is none.

    Without a backend it is for reading only, and says so itself.
    """
    try:
        found = find_runbook(runbook)
        state = backend if backend is not None else without_backend(view)
        return make_plan(found, view, report, state, {}, made_at_s=view.at_s)
    except PdopsError as error:
        return error
    except ValueError as error:
        # A name that is no text at all cannot be hashed.
        return RunbookError("a plan cannot be made", where=runbook, why=str(error), hint="rename what it names")
