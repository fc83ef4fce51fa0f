"""The screen as data for scripts: `pdops/top/v1`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pdops.diagnose import encode as diagnosis
from pdops.model.times import rfc3339
from pdops.model.view import Presence
from pdops_tui.models.format import SIGNS, Cell
from pdops_tui.models.pools import Row, Table
from pdops_tui.models.screen import Screen
from pdops_tui.models.text import clean

SCHEMA = "pdops/top/v1"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def to_json(screens: Sequence[Screen]) -> str:
    """Return the published JSON text of one or several sources, one trailing newline."""
    body = {"schema": SCHEMA, "sources": [to_dict(screen) for screen in screens]}
    return json.dumps(body, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def to_dict(screen: Screen) -> dict[str, Any]:
    """Return one source as plain data; a value that is not known is null with its reason."""
    snapshot = screen.snapshot
    view, position = snapshot.view, snapshot.position
    health = [screen.ask.health(w.id).presence for w in view.cluster.workers]
    return {
        "source": clean(snapshot.source),
        "cluster": clean(view.cluster.name),
        "model": view.cluster.model,
        "at": None if view.relative else rfc3339(view.at_s),
        "at_s": diagnosis.encode(view.at_s),
        "window_s": diagnosis.encode(view.now.span_s),
        "slo": diagnosis.encode(view.cluster.slo),
        "slo_of_session": snapshot.slo is not None,
        "trouble": screen.header.trouble or None,
        "workers": len(health),
        "workers_up": sum(p in (Presence.UP, Presence.GIVEN) for p in health),
        "replay": None
        if position is None
        else {
            "start": rfc3339(position.start_s),
            "end": None if position.end_s is None else rfc3339(position.end_s),
            "offset_s": diagnosis.encode(position.at_s - position.start_s),
        },
        "promises": [
            {"name": p.label, "target": p.target.removeprefix("/"), "state": p.state.text, **_cell(p.value)}
            for p in screen.header.promises
        ],
        "flows": [{"name": f.label or "requests", "unit": f.unit, **_cell(f.value)} for f in screen.header.flows],
        "tables": [_table(table) for table in screen.tables],
        "others": [
            {
                "role": other.role,
                "id": other.name,
                "state": _cell(other.state),
                "values": {name: _cell(cell) for name, cell in other.values},
            }
            for other in screen.others
        ],
        "diagnosis": None if snapshot.report is None else diagnosis.to_dict(snapshot.report),
    }


def _cell(cell: Cell) -> dict[str, Any]:
    bound = next((name for name, sign in SIGNS.items() if cell.text.lstrip("~").startswith(sign)), None)
    return {
        "value": diagnosis.encode(cell.sort),
        "bound": bound,
        "text": cell.text,
        "mark": cell.mark,
        "why": cell.why,
    }


def _table(table: Table) -> dict[str, Any]:
    return {
        "role": table.role.value,
        "total": table.total,
        "filter": table.filter,
        "columns": [
            {"key": c.key, "title": c.title, "meaning": c.meaning, "signals": list(c.signals)} for c in table.columns
        ],
        "rows": [_row(table, row) for row in table.rows()],
    }


def _row(table: Table, row: Row) -> dict[str, Any]:
    return {
        "id": clean(row.id),
        "kind": "pool" if row.is_pool else "worker",
        "now": not row.dim,
        "state": _cell(row.state),
        "cells": {c.key: _cell(made) for c, made in zip(table.columns, row.cells, strict=True)},
    }


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the published form."""
    text, number, whole = {"type": "string"}, {"type": "number"}, {"type": "integer"}
    maybe_text = {"type": ["string", "null"]}
    maybe = {"type": ["number", "null"]}
    cell = {
        "value": {**maybe, "description": "base units; what the cell sorts by; null: not known, `why` says why"},
        "bound": {"enum": ["ge", "le", None], "description": "`value` is only a bound of the true number"},
        "text": text,
        "mark": {"enum": ["", "!", "X"]},
        "why": text,
    }
    state = {"$ref": "#/$defs/cell"}
    cells = {"type": "object", "additionalProperties": state}
    row = {"id": text, "kind": {"enum": ["worker", "pool"]}, "now": {"type": "boolean"}, "state": state, "cells": cells}
    column = {"key": text, "title": text, "meaning": text, "signals": {"type": "array", "items": text}}
    table = {
        "role": text,
        "total": whole,
        "filter": text,
        "columns": _list_of(column),
        "rows": _list_of(row),
    }
    replay = {"start": text, "end": maybe_text, "offset_s": number}
    slo = {"ttft_s": maybe, "itl_s": maybe, "percentile": number, "attainment": number}
    source = {
        "source": text,
        "cluster": text,
        "model": maybe_text,
        "at": maybe_text,
        "at_s": number,
        "window_s": number,
        "slo": _object(slo),
        "slo_of_session": {"type": "boolean"},
        "trouble": maybe_text,
        "workers": whole,
        "workers_up": whole,
        "replay": {"anyOf": [{"type": "null"}, _object(replay)]},
        "promises": _list_of({"name": text, "target": text, "state": text, **cell}),
        "flows": _list_of({"name": text, "unit": text, **cell}),
        "tables": _list_of(table),
        "others": _list_of({"role": text, "id": text, "state": state, "values": cells}),
        "diagnosis": {
            "anyOf": [{"type": "null"}, {"type": "object", "description": "pdops/diagnosis/v1, see that schema"}]
        },
    }
    return {
        "$schema": DIALECT,
        "title": SCHEMA,
        **_object({"schema": {"const": SCHEMA}, "sources": _list_of(source)}),
        "$defs": {"cell": _object(cell)},
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list_of(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": _object(properties)}
