"""Pages of checks, causes, log lines and known-bad versions, and their JSON."""

from __future__ import annotations

import jsonschema
import pytest

from pdops.diagnose import explain_json, pages


def test_every_id_of_the_index_has_a_page_and_is_there_once() -> None:
    ids = [entry.id for entry in pages.index()]
    assert len(set(ids)) == len(ids)
    for entry in pages.index():
        page = pages.find(entry.id)
        assert page is not None
        assert (page.id, page.title) == (entry.id, entry.title)
        assert page.text.startswith(f"# {entry.id}\n")
        jsonschema.validate(explain_json.answer(entry.id, [page]), explain_json.schema("explain"))


def test_the_list_is_as_its_schema_says() -> None:
    jsonschema.validate(explain_json.listing(pages.index()), explain_json.schema("explain-list"))


def test_a_log_line_names_cause_first_check_and_where_it_was_seen() -> None:
    first, *others = pages.about("ERROR NIXL transfer failure: transfer_failed: NIXL_ERR_BACKEND")
    assert first.id == "log/nixl-transfer-failed"
    assert [page.id for page in others] == ["log/nixl-backend-error"]
    for said in ("cause/transport-error", "First check: group by pair", "vLLM", "https://"):
        assert said in first.text
    answer = explain_json.answer("x", [first, *others])
    jsonschema.validate(answer, explain_json.schema("explain"))
    assert answer["line"]["cause"] == "transport-error"
    assert [other["id"] for other in answer["others"]] == ["log/nixl-backend-error"]


def test_a_cause_names_the_lines_that_tell_of_it() -> None:
    page = pages.find("peer-restart-stale-state")
    assert page is not None
    assert "- log/nixl-remote-disconnect: `NIXL_ERR_REMOTE_DISCONNECT`" in page.text


@pytest.mark.parametrize(
    ("asked", "offered"),
    [
        ("transfer/link-slo", "transfer/link-slow"),
        ("NIXL_ERR_REMOTE_DISCONECT", "log/nixl-remote-disconnect"),
        ("nixl-restart-segfaul", "known-bad/nixl-restart-segfault"),
    ],
)
def test_near_ids_are_offered(asked: str, offered: str) -> None:
    assert pages.about(asked) == ()
    assert offered in pages.close(asked)
