"""pair/nixl-backends: equal lists, and right for the fabric."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, unread, verdict
from tests.diagnose.pairs import Facts, judge, pair_view

ID = "pair/nixl-backends"


def test_a_sound_pair_is_fine() -> None:
    assert verdict(judge(ID)) == "ok"


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (None, '["UCX"]', "ok"),
        ('["UCX", "LIBFABRIC"]', "['LIBFABRIC', 'UCX']", "ok"),
        ('["UCX"]', '["LIBFABRIC"]', "fail"),
        (None, "LIBFABRIC", "fail"),
    ],
)
def test_lists(left: str | None, right: str | None, expected: str) -> None:
    assert verdict(judge(ID, {"backends": left}, {"backends": right})) == expected


@pytest.mark.parametrize(
    ("devices", "backends", "expected"),
    [
        ('{"rdmap0s6": {}}', None, "warn"),
        ('{"efa_0": {}}', '["LIBFABRIC"]', "ok"),
        ('{"mlx5_0": {}}', None, "ok"),
        ("{}", None, "ok"),
        ("not json", None, "ok"),
    ],
)
def test_efa_devices_want_libfabric(devices: str, backends: str | None, expected: str) -> None:
    both: Facts = {"host.rdma": devices, "backends": backends}
    assert verdict(judge(ID, both, both)) == expected


def test_unread_and_other_connectors() -> None:
    assert unread(judge(ID, {"kv_connector": None}, {})) == [("prefill-0", "backends")]
    other = {"kv_connector": "MooncakeConnector"}
    assert verdict(judge(ID, other, other)) == "not-applicable"


def test_golden() -> None:
    golden_preflight(ID, pair_view({}, {"backends": '["LIBFABRIC"]'}))
