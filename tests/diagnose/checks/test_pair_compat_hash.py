"""pair/compat-hash: the handshake's hash is equal and enforced."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, unread, values, verdict
from tests.diagnose.pairs import judge, pair_view

ID = "pair/compat-hash"


def test_a_sound_pair_is_fine() -> None:
    assert verdict(judge(ID)) == "ok"


def test_another_hash_has_to_be_fixed() -> None:
    found = judge(ID, {}, {"compat_hash": "bb22"})
    assert verdict(found) == "fail"
    assert values(found) == [("prefill-0", "compat_hash", "aa11"), ("decode-0", "compat_hash", "bb22")]


@pytest.mark.parametrize(
    ("said", "expected"), [("false", "warn"), ("False", "warn"), ("true", "ok"), ("perhaps", "unknown")]
)
def test_a_check_that_is_switched_off_is_a_warning(said: str, expected: str) -> None:
    assert verdict(judge(ID, {}, {"enforce_handshake_compat": said})) == expected


def test_no_hash_is_unknown() -> None:
    assert unread(judge(ID, {}, {"compat_hash": None})) == [("decode-0", "compat_hash")]
    gone = {"compat_hash": None}
    assert verdict(judge(ID, gone, gone)) == "unknown"


def test_only_nixl_has_a_hash() -> None:
    other = {"kv_connector": "MooncakeConnector"}
    assert verdict(judge(ID, other, other)) == "not-applicable"


def test_golden() -> None:
    golden_preflight(ID, pair_view({}, {"compat_hash": "bb22", "enforce_handshake_compat": "false"}))
