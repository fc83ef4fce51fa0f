"""JSON Schemas of what `pdops drill` prints."""

from __future__ import annotations

from typing import Any

from pdops.model.report import Layer, Verdict
from pdops.reference.drills.plan import Need, Split
from pdops.reference.drills.run import LIST_SCHEMA, RUN_SCHEMA
from pdops.reference.schemas import COUNT, MAYBE, SECONDS, TEXT, TEXTS, closed
from pdops.sources.schemas import DIALECT

_VERDICT = {"enum": [v.value for v in Verdict]}


def listing() -> dict[str, Any]:
    """Return the schema of `pdops drill list --json`."""
    drill = closed(
        name=TEXT,
        family=TEXT,
        summary=TEXT,
        split={"enum": [s.value for s in Split]},
        verdict=_VERDICT,
        layers={"type": "array", "items": {"enum": [layer.value for layer in Layer]}},
        causes=TEXTS,
        least_s=COUNT,
        needs={"type": "array", "items": {"enum": [n.value for n in Need]}},
        up=TEXT,
        available={"type": "boolean"},
        why=TEXTS,
        note=MAYBE,
    )
    fields = closed(schema={"const": LIST_SCHEMA}, deployment=MAYBE, drills={"type": "array", "items": drill})
    return {"$schema": DIALECT, "title": "pdops drill list --json", **fields}


def running() -> dict[str, Any]:
    """Return the schema of `pdops drill run --json`."""
    moment = closed(at_s=SECONDS, verdict=_VERDICT, causes=TEXTS, right={"type": "boolean"})
    moments = {"type": "array", "items": moment}
    fields = closed(
        schema={"const": RUN_SCHEMA},
        drill=TEXT,
        split={"enum": [s.value for s in Split]},
        recording=TEXT,
        bytes=COUNT,
        truth=TEXT,
        actions={"type": "array", "items": {"type": "object"}},
        windows={"type": "array", "items": {"type": "object"}},
        loads={"type": "array", "items": {"type": "object"}},
        diagnosis=closed(right={"type": "boolean"}, strongest=moment, fault=moments, healthy=moments),
    )
    return {"$schema": DIALECT, "title": "pdops drill run --json", **fields}
