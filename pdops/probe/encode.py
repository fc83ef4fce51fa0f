"""A canary report as JSON (`pdops/canary/v1`), and the JSON Schema of it."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from pdops.model.report import Bound
from pdops.model.times import rfc3339
from pdops.probe.report import Api, CanaryReport, Check, Observed, Result, Status

SCHEMA = "pdops/canary/v1"
_DIGITS = 12
_CHECKS = ("prefill", "answer", "text", "finish_reason", "external_tokens", "local_compute", "bytes")


def to_json(report: CanaryReport) -> str:
    """Return the published JSON text, one trailing newline."""
    return json.dumps(to_dict(report), ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def to_dict(report: CanaryReport) -> dict[str, Any]:
    """Return the published form as plain data."""
    found = [result.status for result in report.results]
    return {
        "schema": SCHEMA,
        "cluster": report.cluster,
        "at": rfc3339(report.at_s),
        "verdict": report.status.value,
        "model": report.model,
        "counts": {status.value: found.count(status) for status in Status},
        "pairs": [{"pair": result.name, **_result(result)} for result in report.pairs],
        "routers": [{"worker": r.name, "prefill": r.src, "decode": r.dst, **_result(r)} for r in report.routers],
        "notes": list(report.notes),
    }


def _result(result: Result) -> dict[str, Any]:
    seconds = result.seconds
    return {
        "verdict": result.status.value,
        "because": result.because or None,
        "answered": result.answered,
        "api": result.api.value if result.api is not None else None,
        "prompt_tokens": result.prompt_tokens,
        "duration_s": _number(result.duration_s),
        "prefill_s": _number(seconds.prefill),
        "first_token_s": _number(seconds.first_token),
        "answer_s": _number(seconds.answer),
        "reference_s": _number(seconds.reference),
        "checks": [_check(check) for check in result.checks],
        "next": list(result.next),
    }


def _check(check: Check) -> dict[str, Any]:
    return {
        "name": check.name,
        "status": check.status.value,
        "observed": _observed(check.observed),
        "expected": _observed(check.expected),
        "unit": check.unit,
        "why": check.why or None,
    }


def _observed(value: Observed) -> object:
    if isinstance(value, Bound):
        return {"value": _number(value.value), "bound": value.bound}
    return value if value is None or isinstance(value, str) else _number(value)


def _number(value: float | None) -> float | None:
    if value is None or not isfinite(value):
        return None
    return float(f"{value:.{_DIGITS}g}")


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the published form."""
    text, number, verdict = {"type": "string"}, {"type": "number"}, {"enum": [status.value for status in Status]}
    observed = {"anyOf": [number, {"$ref": "#/$defs/bound"}, text, {"type": "null"}]}
    seconds = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "null"}]}
    check = _object(
        {
            "name": {"enum": list(_CHECKS)},
            "status": verdict,
            "observed": observed,
            "expected": observed,
            "unit": text,
            "why": _optional(text),
        }
    )
    result = {
        "verdict": verdict,
        "because": _optional(text),
        "answered": {"type": "boolean"},
        "api": {"enum": [*(api.value for api in Api), None]},
        "prompt_tokens": _optional({"type": "integer", "minimum": 0}),
        "duration_s": {"type": "number", "minimum": 0},
        **dict.fromkeys(("prefill_s", "first_token_s", "answer_s", "reference_s"), seconds),
        "checks": _list({"$ref": "#/$defs/check"}),
        "next": _list(text),
    }
    count = {"type": "integer", "minimum": 0}
    body = _object(
        {
            "schema": {"const": SCHEMA},
            "cluster": text,
            "at": {"type": "string", "format": "date-time"},
            "verdict": verdict,
            "model": _optional(text),
            "counts": _object({status.value: count for status in Status}),
            "pairs": _list(_object({"pair": {"type": "string", "pattern": "^[^>]+>[^>]+$"}, **result})),
            "routers": _list(
                _object({"worker": text, "prefill": _optional(text), "decode": _optional(text), **result})
            ),
            "notes": _list(text),
        }
    )
    bound = _object({"value": number, "bound": {"enum": ["ge", "le"]}})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pdops canary",
        **body,
        "$defs": {"bound": bound, "check": check},
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _optional(what: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [what, {"type": "null"}]}
