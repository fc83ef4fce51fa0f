"""JSON Schemas of what `pdops drill` prints."""

from __future__ import annotations

from typing import Any

from pdops.model.report import Layer, Verdict
from pdops.reference.drills.plan import Need, Split
from pdops.reference.drills.run import LIST_SCHEMA, RUN_SCHEMA

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_VERDICT = {"enum": [v.value for v in Verdict]}
_MAYBE = {"type": ["string", "null"]}
_COUNT = {"type": "integer", "minimum": 0}
_SECONDS = {"type": "number", "minimum": 0}


def _object(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(fields), "additionalProperties": False, "properties": fields}


def listing() -> dict[str, Any]:
    """Return the schema of `pdops drill list --json`."""
    drill = _object(
        name=_TEXT,
        family=_TEXT,
        summary=_TEXT,
        split={"enum": [s.value for s in Split]},
        verdict=_VERDICT,
        layers={"type": "array", "items": {"enum": [layer.value for layer in Layer]}},
        causes=_TEXTS,
        least_s=_COUNT,
        needs={"type": "array", "items": {"enum": [n.value for n in Need]}},
        up=_TEXT,
        available={"type": "boolean"},
        why=_TEXTS,
        note=_MAYBE,
    )
    fields = _object(schema={"const": LIST_SCHEMA}, deployment=_MAYBE, drills={"type": "array", "items": drill})
    return {"$schema": _DIALECT, "title": "pdops drill list --json", **fields}


def running() -> dict[str, Any]:
    """Return the schema of `pdops drill run --json`."""
    moment = _object(at_s=_SECONDS, verdict=_VERDICT, causes=_TEXTS, right={"type": "boolean"})
    moments = {"type": "array", "items": moment}
    fields = _object(
        schema={"const": RUN_SCHEMA},
        drill=_TEXT,
        split={"enum": [s.value for s in Split]},
        recording=_TEXT,
        bytes=_COUNT,
        truth=_TEXT,
        actions={"type": "array", "items": {"type": "object"}},
        windows={"type": "array", "items": {"type": "object"}},
        loads={"type": "array", "items": {"type": "object"}},
        diagnosis=_object(right={"type": "boolean"}, strongest=moment, fault=moments, healthy=moments),
    )
    return {"$schema": _DIALECT, "title": "pdops drill run --json", **fields}
