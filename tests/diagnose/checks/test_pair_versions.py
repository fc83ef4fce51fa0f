"""pair/versions: kind of engine, engine, connector and NIXL."""

from __future__ import annotations

import pytest

from tests.diagnose.build import ask, golden_preflight, unread, values, verdict, view, worker
from tests.diagnose.pairs import judge, pair_view

ID = "pair/versions"


def test_a_sound_pair_is_fine() -> None:
    assert verdict(judge(ID)) == "ok"


@pytest.mark.parametrize(
    ("name", "other", "expected"),
    [("version", "0.31.0", "fail"), ("connector_version", "13", "fail"), ("nixl_version", "1.3.1", "warn")],
)
def test_another_version(name: str, other: str, expected: str) -> None:
    found = judge(ID, {}, {name: other})
    assert verdict(found) == expected
    assert ("decode-0", name, other) in values(found)


def test_the_inventory_s_version_counts() -> None:
    made = (worker("prefill-0", version="0.32.0"), worker("decode-0", version="0.31.0"))
    assert verdict(ask(ID, view(workers=made))) == "fail"


def test_other_engines_cannot_pair() -> None:
    made = (worker("prefill-0"), worker("decode-0", engine="sglang"))
    assert values(ask(ID, view(workers=made)))[0] == ("prefill-0", "engine", "vllm")


def test_the_connector_is_part_of_the_engine() -> None:
    gone = {"connector_version": None}
    assert verdict(judge(ID, gone, gone)) == "ok"
    assert unread(judge(ID, gone, {})) == [("prefill-0", "connector_version")]


def test_nixl_s_version_is_asked_only_where_nixl_is_used() -> None:
    other = {"kv_connector": "MooncakeConnector", "nixl_version": None}
    assert verdict(judge(ID, other, other)) == "ok"
    gone = {"nixl_version": None}
    assert unread(judge(ID, gone, gone)) == [("prefill-0", "nixl_version"), ("decode-0", "nixl_version")]


def test_golden() -> None:
    golden_preflight(ID, pair_view({}, {"version": "0.31.0", "connector_version": "13", "nixl_version": "1.3.1"}))
