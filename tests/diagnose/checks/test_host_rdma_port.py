"""host/rdma-port: active, routable, of one MTU; not asked of TCP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.diagnose.build import golden_preflight, unread, values, verdict
from tests.diagnose.hostfacts import GID, LINK_LOCAL, D, P, because, engine, judge, rdma, seen

ID = "host/rdma-port"
Side = dict[str, str | None]


def ends(left: str | None = None, right: str | None = None, **more: str | None) -> tuple[Side, Side]:
    return engine("a", host__rdma=left or rdma(), **more), engine("b", host__rdma=right or rdma(), **more)


def test_active_and_alike() -> None:
    found = judge(ID, *ends())
    assert verdict(found) == "ok"
    assert "prefill-0 mlx5_0:1" in because(found)


@pytest.mark.parametrize(
    ("state", "says"),
    [("ACTIVE", "ok"), ("4: ACTIVE", "ok"), ("DOWN", "fail"), ("INIT", "fail"), ("ACTIVE_DEFER", "fail")],
)
def test_state(state: str, says: str) -> None:
    assert verdict(judge(ID, *ends(rdma(state=state)))) == says


def test_a_port_that_is_not_named_may_be_down() -> None:
    both = rdma()[:-1] + ", " + rdma(state="DOWN", name="mlx5_1")[1:]
    assert verdict(judge(ID, *ends(both, both))) == "ok"
    assert verdict(judge(ID, *ends(both, both, UCX_NET_DEVICES="mlx5_0:1"))) == "ok"
    assert verdict(judge(ID, *ends(both, both, UCX_NET_DEVICES="mlx5_0:1,mlx5_1:1"))) == "fail"


def entry(index: int, gid: str, kind: str = "RoCE v2") -> dict[str, Any]:
    return {"index": index, "gid": gid, "type": kind}


@pytest.mark.parametrize(
    ("gids", "index", "says"),
    [
        ([entry(3, GID)], None, "ok"),
        ([entry(0, LINK_LOCAL), entry(3, GID)], None, "ok"),
        ([entry(0, LINK_LOCAL)], None, "fail"),
        ([entry(2, GID, "IB/RoCE v1")], None, "fail"),
        ([entry(0, LINK_LOCAL), entry(3, GID)], "3", "ok"),
        ([entry(0, LINK_LOCAL), entry(3, GID)], "0", "fail"),
        ([entry(3, GID)], "1", "fail"),
        ([GID], None, "ok"),
        ([], None, "unknown"),
    ],
)
def test_gids_on_ethernet(gids: list[Any], index: str | None, says: str) -> None:
    assert verdict(judge(ID, *ends(rdma(gids=gids), UCX_IB_GID_INDEX=index))) == says


def test_gids_of_infiniband_are_its_own() -> None:
    ports = rdma(gids=[LINK_LOCAL], layer="InfiniBand")
    assert verdict(judge(ID, *ends(ports, ports))) == "ok"


def test_mtu_differs() -> None:
    found = judge(ID, *ends(rdma(mtu=9000), rdma(mtu=1500)))
    assert values(found) == [(P, "host.rdma mtu", "9000"), (D, "host.rdma mtu", "1500")]
    assert (P, "host.rdma mtu") in unread(judge(ID, *ends(rdma(mtu=None))))


@pytest.mark.parametrize(
    "facts", [{"UCX_TLS": "tcp,self"}, {"UCX_NET_DEVICES": "lo"}, {"host.rdma": "{}"}], ids=["tls", "lo", "no device"]
)
def test_tcp_on_purpose_is_not_judged(facts: Side) -> None:
    left, right = ends()
    found = judge(ID, left | facts, right | facts)
    assert verdict(found) == "not-applicable"
    assert P in because(found)


def test_rdma_asked_for_without_a_port() -> None:
    assert verdict(judge(ID, *ends(UCX_NET_DEVICES="mlx5_7:1", UCX_TLS="rc"))) == "fail"


def test_what_was_not_read_is_unknown() -> None:
    assert unread(judge(ID)) == [(P, "UCX_TLS"), (D, "UCX_TLS")]
    left, right = ends(UCX_TLS="rc")
    assert (P, "host.rdma") in unread(judge(ID, left | {"host.rdma": None}, right))
    left, right = ends()
    assert unread(judge(ID, left | {"host.rdma": None}, right)) == [(P, "host.rdma")]
    assert unread(judge(ID, left | {"host.rdma": "no json"}, right)) == [(P, "host.rdma")]


def test_golden() -> None:
    left, right = ends(rdma(gids=[entry(0, LINK_LOCAL)]), rdma(state="DOWN"))
    assert verdict(golden_preflight(ID, seen(left, right))) == "fail"
