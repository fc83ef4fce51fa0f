"""Plans and runbooks as JSON, and plans back from it."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pdops.errors import RefusedError, RunbookError
from pdops.runbook.model import Runbook
from pdops.runbook.plan import SCHEMA, Plan, plan_hash, sealed
from pdops.runbook.states import RunState
from pdops.runbook.timeline import SCHEMA as RUN
from pdops.sources.schemas import DIALECT

LISTING, LINT = "pdops/runbooks/v1", "pdops/runbook-lint/v1"
RUNS, AUDIT = "pdops/runs/v1", "pdops/audit/v1"
_TEXT = {"type": "string"}
_TIME = {"type": "string", "format": "date-time"}
_STATE = {"enum": [state.value for state in RunState]}
MAX_BYTES = 1 << 20
_WHAT = "plan cannot be used"
_ADAPTER: TypeAdapter[Plan] = TypeAdapter(Plan)


def plan_to_json(plan: Plan) -> str:
    """Return a plan as the JSON that is written to a file and approved."""
    return json.dumps(asdict(plan), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def plan_from_json(text: str, *, path: str) -> Plan:
    """Read a plan back.

    Raises:
        RunbookError: it is not a plan.
        RefusedError: it was changed after it was made; its hash does not fit.
    """
    hint = "make it again with `pdops runbook plan`"
    if len(text) > MAX_BYTES:
        raise RunbookError(_WHAT, where=path, why="it is larger than 1 MiB", hint=hint)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunbookError(_WHAT, where=path, why=f"not JSON: {error}", hint=hint) from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise RunbookError(_WHAT, where=path, why=f"its schema is not {SCHEMA}", hint=hint)
    unknown = set(content) - {f.name for f in fields(Plan)}
    if unknown:
        raise RunbookError(_WHAT, where=path, why=f"unknown key {min(unknown)!r}", hint=hint)
    try:
        plan = _ADAPTER.validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise RunbookError(_WHAT, where=f"{path} {place}", why=first["msg"], hint=hint) from None
    if plan_hash(plan) != plan.plan_hash or sealed(plan).id != plan.id or asdict(plan) != _as_read(plan, content):
        raise RefusedError("plan was changed after it was made", where=path, why="its hash does not fit", hint=hint)
    return plan


def _as_read(plan: Plan, content: dict[str, Any]) -> dict[str, Any]:
    """Return a plan's content as the file has it, so that what reading leaves out or turns into something else is seen."""
    return asdict(plan) if json.loads(plan_to_json(plan)) == content else {}


def runbook_to_json(runbook: Runbook) -> dict[str, Any]:
    """Return a runbook as JSON with the names of the file."""
    return runbook.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def runbook_schema() -> dict[str, Any]:
    """Return the JSON Schema of a runbook; names of actions and checks are looked up on loading only."""
    return {"$schema": DIALECT, **Runbook.model_json_schema(by_alias=True)}


def listing_schema() -> dict[str, Any]:
    """Return the JSON Schema of `pdops runbook list --json`."""
    runbook = Runbook.model_json_schema(by_alias=True)
    definitions = runbook.pop("$defs")
    fields_ = {"schema": {"const": LISTING}, "runbooks": {"type": "array", "items": runbook}}
    return {"$schema": DIALECT, "title": "pdops runbook list --json", "$defs": definitions, **_closed(fields_)}


def lint_schema() -> dict[str, Any]:
    """Return the JSON Schema of `pdops runbook lint --json`."""
    remark = _closed({name: {"type": "string"} for name in ("runbook", "where", "what", "hint")})
    fields_ = {"schema": {"const": LINT}, "remarks": {"type": "array", "items": remark}}
    return {"$schema": DIALECT, "title": "pdops runbook lint --json", **_closed(fields_)}


def runs_schema() -> dict[str, Any]:
    """Return the JSON Schema of `pdops runbook log --json`."""
    run = _closed({"id": _TEXT, "state": _STATE, "why": _TEXT, "cluster": _TEXT, "opened_at": _TIME})
    fields_ = {"schema": {"const": RUNS}, "runs": {"type": "array", "items": run}}
    return {"$schema": DIALECT, "title": "pdops runbook log --json", **_closed(fields_)}


def run_schema() -> dict[str, Any]:
    """Return the JSON Schema of `pdops runbook log RUN --json`, and of what `apply` and `resume` print."""
    event = _closed(
        {
            "seq": {"type": "integer", "minimum": 1},
            "at_s": {"type": "number"},
            **dict.fromkeys(("run", "kind", "actor", "hash"), _TEXT),
            "body": {"type": "object"},
        }
    )
    plan = _ADAPTER.json_schema(mode="serialization")
    definitions = plan.pop("$defs", {})
    fields_ = {
        "schema": {"const": RUN},
        **dict.fromkeys(("id", "why", "cluster", "runbook", "risk", "requester"), _TEXT),
        "state": _STATE,
        "approver": {"type": ["string", "null"]},
        "opened_at": _TIME,
        "changed_at": _TIME,
        "plan": plan,
        "events": {"type": "array", "items": event},
    }
    return {"$schema": DIALECT, "title": "pdops runbook log RUN --json", "$defs": definitions, **_closed(fields_)}


def audit_schema() -> dict[str, Any]:
    """Return the JSON Schema of `pdops runbook verify-audit --json`."""
    problems = {"type": "array", "items": _TEXT}
    fields_ = {"schema": {"const": AUDIT}, "events": {"type": "integer"}, "head": _TEXT, "problems": problems}
    return {"$schema": DIALECT, "title": "pdops runbook verify-audit --json", **_closed(fields_)}


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "additionalProperties": False, "properties": properties}


def plan_schema() -> dict[str, Any]:
    """Return the JSON Schema of a plan."""
    return {"$schema": DIALECT, **_ADAPTER.json_schema(mode="serialization"), "title": "pdops runbook plan --json"}
