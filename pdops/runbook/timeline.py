"""A run for people and programs: what happened, when, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from pdops.model.times import rfc3339
from pdops.runbook.journal import Event, Journal, Run

SCHEMA = "pdops/run/v1"


def run_json(journal: Journal, run: Run) -> dict[str, Any]:
    """Return the published form of a run: where it stands, its plan, and its events."""
    return {
        "schema": SCHEMA, "id": run.id, "state": run.state.value, "why": run.why, "cluster": run.cluster,
        "runbook": run.runbook, "risk": run.risk, "requester": run.requester, "approver": run.approver,
        "opened_at": rfc3339(run.opened_at_s), "changed_at": rfc3339(run.changed_at_s), "plan": run.plan,
        "events": [{k: v for k, v in asdict(e).items() if k != "prev"} for e in journal.events(run.id)],
    }  # fmt: skip


def lines(journal: Journal, run: Run) -> Iterator[str]:
    """Yield one line for every event of a run that tells something."""
    for event in journal.events(run.id):
        if text := told(event):
            yield f"{rfc3339(event.at_s)}  {text}"


def told(event: Event) -> str:
    """Return an event in words, or nothing when it tells nothing by itself."""
    body = event.body
    if event.kind == "opened":
        return f"{event.actor} asked for {body['plan']['runbook']} on {', '.join(body['plan']['touches']) or 'nothing'}"
    if event.kind == "approved":
        return f"approved by {event.actor}" + (f" ({body['why']})" if body.get("why") else "")
    if event.kind == "state":
        return f"{body['to']}" + (f": {body['why']}" if body.get("why") else "")
    if event.kind == "started":
        return f"started; locks {', '.join(body['locks'])}"
    if event.kind == "abort":
        return f"{event.actor} asked to abort it"
    if event.kind == "step":
        what = f"{'take back ' if body['phase'] == 'undo' else ''}{body['id']}"
        if body["to"] == "intent":
            aim = f": {body['subject']} from {body['before']} to {body['target']}" if body.get("subject") else ""
            return f"{what} {body['action']}{aim}"
        return f"{what} {body['to']}" + (f": {body['detail']}" if body.get("detail") else "")
    return ""
