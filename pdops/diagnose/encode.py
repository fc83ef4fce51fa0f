"""A Report as JSON, and the JSON Schema of it."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from enum import StrEnum
from math import isfinite
from typing import Any

from pdops.model.report import Bound, Layer, Report, RuledOut, Scope, Symptom

SCHEMA = "pdops/diagnosis/v1"
_DIGITS = 12
"""Significant digits kept: more are noise of floating-point sums and would differ between platforms."""


def to_json(report: Report) -> str:
    """Return the published JSON text, one trailing newline; the same report gives the same bytes."""
    return json.dumps(to_dict(report), ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def to_dict(report: Report) -> dict[str, Any]:
    """Return the published form as plain data."""
    body = encode(report)
    if report.at is not None:
        body.pop("at_s")
    return {"schema": SCHEMA, **body}


def encode(value: Any) -> Any:
    """Return a value of the report model as plain data for JSON."""
    if isinstance(value, Scope):
        return {value.kind: value.id}
    if isinstance(value, Bound):
        return {"value": encode(value.value), "bound": value.bound}
    if isinstance(value, StrEnum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        out = {f.name.rstrip("_"): encode(getattr(value, f.name)) for f in fields(value)}
        if isinstance(value, RuledOut) or "why" in out:
            # An optional scope is left out rather than null, so that scripts can test for the key.
            return {k: v for k, v in out.items() if not (k == "scope" and v is None)}
        return out
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if isfinite(value) else None
    return value


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the published form."""
    text = {"type": "string"}
    number = {"type": "number"}
    scope = {
        "type": "object",
        "properties": dict.fromkeys(("worker", "pool", "pair", "node", "zone", "global"), text),
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    bound = object_of({"value": number, "bound": {"enum": ["ge", "le"]}})
    observed = {"anyOf": [number, {"$ref": "#/$defs/bound"}, text, {"type": "null"}]}
    evidence = object_of(
        {
            "signal": text,
            "scope": {"anyOf": [{"$ref": "#/$defs/scope"}, {"type": "null"}]},
            "observed": observed,
            "expected": observed,
            "basis": {"enum": ["peer", "history", "physics", "config", "log", "probe"]},
            "unit": text,
            "window_s": {"anyOf": [number, {"type": "null"}]},
        }
    )
    missing = object_of(
        {"signal": text, "why": text, "fix": text, "scope": {"$ref": "#/$defs/scope"}}, optional=("scope",)
    )
    hypothesis = object_of(
        {
            "fault": {"type": "integer", "minimum": 1},
            "cause": text,
            "check": text,
            "layer": {"enum": [layer.value for layer in Layer]},
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
            "scopes": list_of({"$ref": "#/$defs/scope"}),
            "for": list_of({"$ref": "#/$defs/evidence"}),
            "against": list_of({"$ref": "#/$defs/evidence"}),
            "missing": list_of({"$ref": "#/$defs/missing"}),
            "next": list_of(text),
            "runbooks": list_of(text),
            "do_not": list_of(object_of({"action": text, "why": text})),
        }
    )
    stage = object_of(
        {
            "stage": text,
            "seconds": {"anyOf": [number, {"$ref": "#/$defs/bound"}, {"type": "null"}]},
            "share": {"anyOf": [number, {"type": "null"}]},
            "why": {"anyOf": [text, {"type": "null"}]},
        }
    )
    body = object_of(
        {
            "schema": {"const": SCHEMA},
            "cluster": text,
            "at": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
            "at_s": number,
            "verdict": {"enum": ["fault", "overload", "healthy", "unknown"]},
            "symptoms": list_of({"enum": [symptom.value for symptom in Symptom]}),
            "ttft": list_of(stage),
            "hops": list_of(object_of({"question": text, "answer": text, "signals": list_of(text)})),
            "hypotheses": {**list_of({"$ref": "#/$defs/hypothesis"}), "maxItems": 5},
            "ruled_out": list_of(
                object_of({"cause": text, "because": text, "scope": {"$ref": "#/$defs/scope"}}, optional=("scope",))
            ),
            "missing": list_of({"$ref": "#/$defs/missing"}),
        },
        optional=("at_s",),
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        **body,
        "$defs": {"scope": scope, "bound": bound, "evidence": evidence, "missing": missing, "hypothesis": hypothesis},
    }


def object_of(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the schema of an object with these properties and no others, all required but the optional ones."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def list_of(items: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": items}
