"""The screen as data: `pdops/top/v1`."""

from __future__ import annotations

import json

import jsonschema
import pytest

from pdops_tui.encode import SCHEMA, schema, to_json
from pdops_tui.models.screen import build
from pdops_tui.session import Session
from pdops_tui.snapshot import Position
from tests.tui import build as b
from tests.tui.states import STATES
from tests.tui.test_once import seen


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("replayed", [False, True])
def test_every_state_is_valid_and_says_why_a_value_is_null(name: str, replayed: bool) -> None:
    view, report = seen(name)
    position = Position(index=1, start_s=b.START_S, at_s=view.at_s) if replayed else None
    text = to_json([build(b.snapshot(view, report, position=position))])
    body = json.loads(text)
    jsonschema.Draft202012Validator(schema()).validate(body)
    assert body["schema"] == SCHEMA
    (source,) = body["sources"]
    assert (source["replay"] is not None) is replayed
    for table in source["tables"]:
        assert all(set(row["cells"]) == {c["key"] for c in table["columns"]} for row in table["rows"])
        for row in table["rows"]:
            assert all(cell["why"] for cell in row["cells"].values() if cell["value"] is None)


def test_a_worker_that_is_away_is_not_about_now() -> None:
    view = b.view(b.cluster(2, 12), seconds=100, life=b.down(80, "decode-7"))
    report = b.unknown_report(view)
    (source,) = json.loads(to_json([build(b.snapshot(view, report))]))["sources"]
    (decode,) = (t for t in source["tables"] if t["role"] == "decode")
    away = [row["id"] for row in decode["rows"] if not row["now"]]
    assert away == ["decode-7"]
    assert source["workers_up"] == source["workers"] - 1


def test_a_bound_is_said_to_be_one() -> None:
    def late(page: b.Page, worker: b.Worker, second: int) -> bool:
        page.observe("queue_seconds", 60.0)
        return b.healthy(page, worker, second)

    view = b.view(seconds=90, life=late)
    (source,) = json.loads(to_json([build(b.snapshot(view, None))]))["sources"]
    cells = [cell for t in source["tables"] for row in t["rows"] for cell in row["cells"].values()]
    bound = [cell for cell in cells if cell["bound"] is not None]
    assert bound
    assert all(cell["text"].startswith((">=", "<=", "~>=", "~<=")) for cell in bound)


def test_the_filter_and_the_columns_of_the_session_are_in_it() -> None:
    view, report = seen("degraded")
    (source,) = json.loads(to_json([build(b.snapshot(view, report), Session(filter="decode-1"))]))["sources"]
    rows = [row["id"] for table in source["tables"] for row in table["rows"] if row["kind"] == "worker"]
    assert rows == ["decode-1"]
