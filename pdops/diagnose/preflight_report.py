"""The outcome of `pdops preflight` as it is published, and its JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pdops.catalog.load import catalog
from pdops.diagnose.encode import encode
from pdops.diagnose.finding import CheckMeta, Finding, Status
from pdops.diagnose.preflight import Outcome, Result, outcome, overall
from pdops.model.report import Layer, Missing, Observed, Scope

SCHEMA = "pdops/preflight/v1"
_MOST_MISSING = 64
_FAMILIES = ("host.", "reach.")
_OPTIONS, _ENVIRONMENT = "command line", "environment.*"


class Reason(NamedTuple):
    """Why a fact of a worker could not be read; `key` may be a family, `host.*`."""

    worker: str
    key: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSeen:
    """One value that was read, of whom."""

    scope: Scope | None
    option: str
    value: Observed
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """What one check came to. `cause` and `layer` are those of the gravest finding."""

    id: str
    title: str
    status: Outcome
    cause: str
    layer: Layer
    values: tuple[ValueSeen, ...] = ()
    expected: str | None = None
    because: str = ""
    next: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightReport:
    """All checks in the order of the registry. `at` is RFC 3339; `notes` concern what was read as a whole."""

    cluster: str
    at: str
    checks: tuple[CheckOutcome, ...]
    unread: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether nothing must be fixed; what could not be judged does not count."""
        return not any(check.status is Outcome.FAIL for check in self.checks)

    def count(self, *statuses: Outcome) -> int:
        """Return how many checks came to one of these."""
        return sum(1 for check in self.checks if check.status in statuses)


def report(
    results: Sequence[Result], *, cluster: str, at: str, unread: Iterable[Reason] = (), notes: Iterable[str] = ()
) -> PreflightReport:
    """Build the report from what the checks found.

    Args:
        results: what `run_preflight` returned.
        cluster: name of the cluster.
        at: RFC 3339.
        unread: what collectors could not read; their reasons are put beside the values that checks missed.
        notes: said once for the whole.
    """
    reasons = tuple(dict.fromkeys(unread))
    by_key: dict[tuple[str, str], str] = {(r.worker, r.key): r.why for r in reasons}
    checks = tuple(_check(meta, findings, by_key) for meta, findings in results)
    return PreflightReport(cluster=cluster, at=at, checks=checks, unread=reasons, notes=tuple(notes))


def _check(meta: CheckMeta, findings: Sequence[Finding], reasons: Mapping[tuple[str, str], str]) -> CheckOutcome:
    status = overall(findings)
    grave = [f for f in findings if outcome(f) is status] or list(findings)
    fired = [f for f in findings if f.status is Status.FIRED]
    cause = grave[0].cause or meta.causes[0]
    evidence = [w.evidence for f in fired for w in f.for_]
    missing = [_explained(m, reasons) for f in findings for m in f.missing]
    expected = dict.fromkeys(str(e.expected) for e in evidence if e.expected is not None)
    clear = status in (Outcome.OK, Outcome.NOT_APPLICABLE)
    return CheckOutcome(
        id=meta.id,
        title=meta.title,
        status=status,
        cause=cause,
        layer=grave[0].layer or catalog().causes[cause].layer,
        values=tuple(
            dict.fromkeys(ValueSeen(scope=e.scope, option=e.signal, value=e.observed, unit=e.unit) for e in evidence)
        ),
        expected="; ".join(expected) or None,
        because="; ".join(dict.fromkeys(f.because for f in (grave if clear else findings) if f.because)),
        next=tuple(dict.fromkeys(step for f in fired for step in f.next)),
        missing=tuple(dict.fromkeys(missing))[:_MOST_MISSING],
    )


def _explained(missing: Missing, reasons: Mapping[tuple[str, str], str]) -> Missing:
    """Put the collector's reason beside what a check missed."""
    if missing.scope is None:
        return missing
    for worker in missing.scope.id.split(">"):
        for key in _keys(missing.signal, missing.scope):
            why = reasons.get((worker, key))
            if why is not None and why not in missing.why:
                where = f"{worker}: " if ">" in missing.scope.id else ""
                return replace(missing, why=f"{missing.why} ({where}{why})")
    return missing


def _keys(signal: str, scope: Scope) -> tuple[str, ...]:
    family = next((f"{prefix}*" for prefix in _FAMILIES if signal.startswith(prefix)), None)
    if family is not None:
        return (signal, family)
    if scope.kind != "worker":
        return (signal,)
    return (signal, _ENVIRONMENT) if signal.isupper() else (signal, _OPTIONS)


def to_json(preflight: PreflightReport) -> str:
    """Return the published JSON text, one trailing newline; the same report gives the same bytes."""
    return json.dumps(to_dict(preflight), ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def to_dict(preflight: PreflightReport) -> dict[str, Any]:
    """Return the published form as plain data."""
    return {
        "schema": SCHEMA,
        "cluster": preflight.cluster,
        "at": preflight.at,
        "ok": preflight.ok,
        "checks": [encode(check) for check in preflight.checks],
        "counts": {status.value.replace("-", "_"): preflight.count(status) for status in _ORDER},
        "unread": [reason._asdict() for reason in preflight.unread],
        "notes": list(preflight.notes),
    }


_ORDER = (Outcome.OK, Outcome.FAIL, Outcome.WARN, Outcome.UNKNOWN, Outcome.NOT_APPLICABLE)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the published form."""
    text, number = {"type": "string"}, {"type": "number"}
    scope = {
        "type": "object",
        "properties": dict.fromkeys(("worker", "pool", "pair", "node", "zone", "global"), text),
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    bound = _object({"value": number, "bound": {"enum": ["ge", "le"]}})
    value = _object(
        {
            "scope": {"anyOf": [{"$ref": "#/$defs/scope"}, {"type": "null"}]},
            "option": text,
            "value": {"anyOf": [number, bound, text, {"type": "null"}]},
            "unit": text,
        }
    )
    missing = _object({"signal": text, "why": text, "fix": text, "scope": {"$ref": "#/$defs/scope"}}, ("scope",))
    check = _object(
        {
            "id": text,
            "title": text,
            "status": {"enum": [status.value for status in _ORDER]},
            "cause": text,
            "layer": {"enum": [layer.value for layer in Layer]},
            "values": _list(value),
            "expected": {"anyOf": [text, {"type": "null"}]},
            "because": text,
            "next": _list(text),
            "missing": _list(missing),
        }
    )
    count = {"type": "integer", "minimum": 0}
    body = _object(
        {
            "schema": {"const": SCHEMA},
            "cluster": text,
            "at": {"type": "string", "format": "date-time"},
            "ok": {"type": "boolean"},
            "checks": _list(check),
            "counts": _object({status.value.replace("-", "_"): count for status in _ORDER}),
            "unread": _list(_object({"worker": text, "key": text, "why": text})),
            "notes": _list(text),
        }
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        **body,
        "$defs": {"scope": scope},
    }


def _object(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}
