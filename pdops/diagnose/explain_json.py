"""Pages as JSON, and the JSON Schemas of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pdops.catalog.log_lines import LineSpec
from pdops.diagnose.encode import list_of, object_of
from pdops.diagnose.pages import Entry, Page
from pdops.model.report import Layer
from pdops.sources.schemas import DIALECT

SCHEMA = "pdops/explain/v1"
LISTING = "pdops/explain-list/v1"


def listing(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return every id with its title as plain data."""
    return {"schema": LISTING, "topics": [{"id": e.id, "title": e.title} for e in entries]}


def answer(asked: str, found: Sequence[Page]) -> dict[str, Any]:
    """Return the pages that answer a question as plain data, the best first; there must be one."""
    return {"schema": SCHEMA, "asked": asked, **_page(found[0]), "others": [_page(page) for page in found[1:]]}


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of `explain` or `explain-list`."""
    text = {"type": "string"}
    if name == "explain-list":
        topic = object_of({"id": text, "title": text})
        return _dialect(LISTING, {"schema": {"const": LISTING}, "topics": list_of(topic)})
    texts = {"type": "array", "items": text}
    line = object_of(
        {
            "component": text,
            "seen_in": text,
            "contains": {**texts, "minItems": 1},
            "cause": {"anyOf": [text, {"type": "null"}]},
            "also": texts,
            "layer": {"enum": [layer.value for layer in Layer]},
            "meaning": text,
            "first_check": text,
            "fix": text,
            "weight": {"enum": ["decisive", "strong", "moderate"]},
            "consequence": {"type": "boolean"},
            "runbooks": texts,
            "source": text,
        }
    )
    page = {
        "id": text,
        "kind": {"enum": ["check", "cause", "log", "known-bad", "alert"]},
        "title": text,
        "text": text,
        "line": {"anyOf": [line, {"type": "null"}]},
    }
    return _dialect(SCHEMA, {"schema": {"const": SCHEMA}, "asked": text, **page, "others": list_of(object_of(page))})


def _dialect(title: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": DIALECT, "title": title, **object_of(properties)}


def _page(page: Page) -> dict[str, Any]:
    line = None if page.line is None else _line(page.line)
    return {"id": page.id, "kind": page.kind, "title": page.title, "text": page.text, "line": line}


def _line(spec: LineSpec) -> dict[str, Any]:
    return {
        "component": spec.component,
        "seen_in": spec.seen_in,
        "contains": list(spec.contains),
        "cause": spec.cause,
        "also": list(spec.also),
        "layer": spec.layer.value,
        "meaning": spec.meaning,
        "first_check": spec.first_check,
        "fix": spec.fix,
        "weight": spec.weight,
        "consequence": spec.consequence,
        "runbooks": list(spec.runbooks),
        "source": spec.source,
    }
