"""host/memlock: unlimited where memory is pinned for RDMA."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, unread, values, verdict
from tests.diagnose.hostfacts import D, P, engine, judge, rdma, seen

ID = "host/memlock"
LOCK, MAPS = "host.memlock_bytes", "host.max_map_count"
Side = dict[str, str | None]


def ends(lock: str | None = "unlimited", maps: str | None = "65530") -> tuple[Side, Side]:
    left, right = (engine(h, host__rdma=rdma(), UCX_TLS="rc") | {LOCK: "unlimited", MAPS: "65530"} for h in "ab")
    return left | {LOCK: lock, MAPS: maps}, right


@pytest.mark.parametrize(
    ("lock", "says"),
    [("unlimited", "ok"), ("8388608", "fail"), ("1099511627776", "fail"), (None, "unknown"), ("much", "unknown")],
)
def test_locked_memory(lock: str | None, says: str) -> None:
    found = judge(ID, *ends(lock))
    assert verdict(found) == says
    if says == "fail":
        assert values(found) == [(P, LOCK, float(lock or 0))]


@pytest.mark.parametrize(("maps", "says"), [("65530", "ok"), ("65529", "warn"), (None, "unknown")])
def test_mappings(maps: str | None, says: str) -> None:
    assert verdict(judge(ID, *ends(maps=maps))) == says


def test_tcp_pins_nothing() -> None:
    facts = engine("a", UCX_TLS="tcp,self", host__memlock_bytes="65536")
    assert verdict(judge(ID, facts, facts)) == "not-applicable"


def test_a_store_over_rdma_counts() -> None:
    facts = engine("a", UCX_TLS="tcp")
    found = judge(ID, facts, facts, store={"protocol": "rdma", LOCK: "65536", MAPS: "65530"})
    assert values(found) == [("store-0", LOCK, 65536.0)]


def test_what_was_not_read_is_unknown() -> None:
    assert unread(judge(ID)) == [(P, "UCX_TLS"), (D, "UCX_TLS")]


def test_golden() -> None:
    assert verdict(golden_preflight(ID, seen(*ends("8388608", "32768")))) == "fail"
