"""pair/prefix-hash: the same tokens have the same key in a shared store."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, unread, verdict
from tests.diagnose.pairs import Facts, judge, pair_view

ID = "pair/prefix-hash"

STORE = {
    "kv_connector": "MultiConnector",
    "kv_connector_children": '["NixlConnector", "MooncakeStoreConnector"]',
}
UNSET = {**STORE, "PYTHONHASHSEED": None}


def test_a_sound_pair_with_a_store_is_fine() -> None:
    assert verdict(judge(ID, STORE, STORE)) == "ok"


def test_without_a_store_nothing_is_looked_up() -> None:
    assert verdict(judge(ID, {}, {"PYTHONHASHSEED": "7"})) == "not-applicable"
    workers = ("prefill-0", "decode-0", "store-0")
    assert verdict(judge(ID, {}, {"PYTHONHASHSEED": "7"}, workers=workers)) == "fail"
    assert unread(judge(ID, {"kv_connector": None}, {})) == [("prefill-0", "kv_connector")]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (STORE, {**STORE, "PYTHONHASHSEED": "7"}, "fail"),
        (STORE, UNSET, "fail"),
        ({**STORE, "PYTHONHASHSEED": "random"}, {**STORE, "PYTHONHASHSEED": "random"}, "fail"),
        (UNSET, UNSET, "ok"),
        ({**UNSET, "prefix_caching_hash_algo": "sha256"}, {**UNSET, "prefix_caching_hash_algo": "sha256"}, "ok"),
        ({**UNSET, "prefix_caching_hash_algo": "xxhash"}, {**UNSET, "prefix_caching_hash_algo": "xxhash"}, "fail"),
        ({**UNSET, "kv_connector_children": '["LMCacheConnectorV1"]'}, UNSET, "fail"),
        ({**STORE, "prefix_caching_hash_algo": "sha256"}, {**STORE, "prefix_caching_hash_algo": "sha256_cbor"}, "fail"),
        ({**STORE, "chunk_size": "256"}, {**STORE, "chunk_size": "128"}, "fail"),
    ],
)
def test_seeds_and_algorithms(left: Facts, right: Facts, expected: str) -> None:
    assert verdict(judge(ID, left, right)) == expected


def test_an_unread_environment_is_unknown() -> None:
    gone = {"PYTHONHASHSEED": None, "kv_connector": None}
    found = judge(ID, gone, gone, workers=("prefill-0", "decode-0", "store-0"))
    assert verdict(found) == "unknown"
    assert ("decode-0", "PYTHONHASHSEED") in unread(found)


def test_golden() -> None:
    golden_preflight(ID, pair_view(STORE, {**STORE, "PYTHONHASHSEED": "7"}))
