"""pair/staging-buffer: the longest prompt fits the buffer."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, unread, verdict
from tests.diagnose.pairs import Facts, judge, pair_view

ID = "pair/staging-buffer"


def test_a_sound_pair_is_fine() -> None:
    assert verdict(judge(ID)) == "not-applicable"


EACH = 2 * 4 * 4 * 64 * 2
"""Bytes of KV of one token of the sound pair's model."""


@pytest.mark.parametrize(
    ("size", "expected"),
    [(1023, "fail"), (1024, "warn"), (2047, "warn"), (2048, "ok")],
)
def test_bounds(size: int, expected: str) -> None:
    tokens = {"max_tokens_in_buffer": str(size)}
    assert verdict(judge(ID, tokens, tokens)) == expected
    in_bytes = {"kv_connector": "LMCacheConnectorV1", "pd_buffer_size": str(size * EACH)}
    assert verdict(judge(ID, in_bytes, in_bytes)) == expected


def test_the_router_s_cap_counts() -> None:
    small = {"max_tokens_in_buffer": "1000"}
    assert verdict(judge(ID, small, small, router={"max_model_len": "500"})) == "ok"


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"pd_buffer_size": None}, "pd_buffer_size"),
        ({"head_dim": None}, "kv_bytes_per_token"),
        ({"max_model_len": None}, "max_model_len"),
    ],
)
def test_what_is_missing_is_named(change: dict[str, str | None], fact: str) -> None:
    left: Facts = {"kv_connector": "LMCacheConnectorV1", "pd_buffer_size": "1e9", **change}
    found = judge(
        ID, left, {"kv_connector": "LMCacheConnectorV1", "pd_buffer_size": "1e9"}, router={"max_model_len": None}
    )
    assert ("prefill-0", fact) in unread(found)
    assert verdict(found) == "unknown"


def test_an_unread_connector_may_stage() -> None:
    assert unread(judge(ID, {"kv_connector": None}, {})) == [("prefill-0", "kv_connector")]


def test_golden() -> None:
    golden_preflight(ID, pair_view({"max_tokens_in_buffer": "512"}, {"max_tokens_in_buffer": "1500"}))
