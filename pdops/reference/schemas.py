"""JSON Schemas of what `pdops up`, `status` and `down` print."""

from __future__ import annotations

from typing import Any, get_args

from pdops.model.cluster import Role
from pdops.reference import down as down_room
from pdops.reference import status as status_room
from pdops.reference.render.write import REPORT_SCHEMA
from pdops.reference.spec import Profile
from pdops.reference.state import Phase
from pdops.sequence.run import Status
from pdops.sources.schemas import DIALECT

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
MAYBE = {"type": ["string", "null"]}
COUNT = {"type": "integer", "minimum": 0}
SECONDS = {"type": "number", "minimum": 0}


def closed(**fields: Any) -> dict[str, Any]:
    """Return the schema of an object that has these fields, all of them and no other."""
    return {"type": "object", "required": list(fields), "additionalProperties": False, "properties": fields}


def status() -> dict[str, Any]:
    """Return the schema of `pdops status --json` and `pdops up --json`."""
    stage = closed(id=TEXT, state={"enum": [s.value for s in Status]}, for_s=SECONDS, detail=TEXT)
    pid = {"type": ["integer", "null"], "minimum": 1}
    seen = {"state": {"enum": list(status_room.STATES)}, "why": MAYBE, "url": TEXT, "pid": pid, "log": TEXT}
    service = closed(id=TEXT, **seen)
    worker = closed(
        id=TEXT,
        role={"enum": [r.value for r in Role]},
        **seen,
        up_s={"type": ["number", "null"]},
        starts=COUNT,
        startup={"type": ["array", "null"], "items": closed(span=TEXT, begin_s=SECONDS, seconds=SECONDS)},
    )
    fields = closed(
        schema={"const": status_room.SCHEMA},
        name=TEXT,
        profile={"enum": [p.value for p in Profile]},
        phase={"enum": [*get_args(Phase), status_room.DEGRADED]},
        network={"enum": ["loopback", "namespaces"]},
        state_dir=TEXT,
        inventory=MAYBE,
        router=MAYBE,
        model=TEXT,
        stages={"type": "array", "items": stage},
        workers={"type": "array", "items": worker},
        services={"type": "array", "items": service},
    )
    return {"$schema": DIALECT, "title": "pdops status --json", **fields}


def down() -> dict[str, Any]:
    """Return the schema of `pdops down --json`."""
    lost = {"type": ["object", "null"], "additionalProperties": {"type": ["integer", "null"], "minimum": 0}}
    return {"$schema": DIALECT, "title": "pdops down --json", **closed(schema={"const": down_room.SCHEMA}, lost=lost)}


def render() -> dict[str, Any]:
    """Return the schema of `pdops up --render DIR --json`."""
    files = dict.fromkeys(("new", "changed", "same", "left"), TEXTS)
    fields = closed(schema={"const": REPORT_SCHEMA}, folder=TEXT, **files)
    return {"$schema": DIALECT, "title": "pdops up --render --json", **fields}
