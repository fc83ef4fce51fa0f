"""host/ucx-transport: UCX_TLS fits where the peer is, UCX_NET_DEVICES names what is there and up."""

from __future__ import annotations

import json

import pytest

from tests.diagnose.build import causes, golden_preflight, unread, values, verdict
from tests.diagnose.hostfacts import D, P, because, cards, engine, judge, rdma, seen

ID = "host/ucx-transport"
NETS = json.dumps({"eth0": {"state": "up"}, "lo": {"state": "unknown"}, "eth1": {"state": "down"}})
Side = dict[str, str | None]


def side(host: str, tls: str | None, devices: str | None = None, **more: str | None) -> Side:
    return engine(host, host__net_devices=NETS, **more) | {"UCX_TLS": tls, "UCX_NET_DEVICES": devices}


def ends(
    tls: str | None, devices: str | None = None, hosts: tuple[str, str] = ("a", "b"), **more: str | None
) -> tuple[Side, Side]:
    return side(hosts[0], tls, devices, **more), side(hosts[1], tls, devices, **more)


@pytest.mark.parametrize(
    ("tls", "says"),
    [
        (None, "ok"),
        ("all", "ok"),
        ("rc,cuda_copy", "ok"),
        ("rc_x,tcp", "ok"),
        ("dc_mlx5", "ok"),
        ("ib", "ok"),
        ("tcp,self", "fail"),
        ("^ib", "fail"),
        ("^cuda_ipc", "ok"),
        ("\\rc_mlx5,tcp", "ok"),
    ],
)
def test_rdma_between_hosts_that_both_have_it(tls: str | None, says: str) -> None:
    found = judge(ID, *ends(tls, host__rdma=rdma()))
    assert verdict(found) == says
    if says == "fail":
        assert causes(found) == ["transport-fallback-slow"]
        assert {scope for scope, _, _ in values(found)} == {P, D}


@pytest.mark.parametrize("ports", ["{}", rdma(state="DOWN")])
def test_tcp_is_right_where_no_port_is_active(ports: str) -> None:
    assert verdict(judge(ID, *ends("tcp,self", host__rdma=ports))) == "ok"
    left, right = ends("tcp,self", host__rdma=rdma())
    assert verdict(judge(ID, left, right | {"host.rdma": ports})) == "ok"


def test_tcp_between_hosts_whose_rdma_was_not_read_is_unknown() -> None:
    assert unread(judge(ID, *ends("tcp"))) == [(P, "host.rdma"), (D, "host.rdma")]


def test_transports_that_stay_on_a_host() -> None:
    found = judge(ID, *ends("cuda_ipc,cuda_copy,self", host__rdma="{}"))
    assert causes(found) == ["transport-config"]


@pytest.mark.parametrize(
    ("tls", "says"),
    [("tcp,self", "fail"), ("cuda_copy,tcp", "fail"), ("cuda,tcp", "ok"), ("cuda_ipc,cuda_copy", "ok"), (None, "ok")],
)
def test_cuda_ipc_between_gpus_of_one_host(tls: str | None, says: str) -> None:
    assert verdict(judge(ID, *ends(tls, hosts=("a", "a"), host__gpus=cards(70.0)))) == says


def test_one_host_without_gpus_needs_none() -> None:
    assert verdict(judge(ID, *ends("tcp,self", hosts=("a", "a"), VLLM_TARGET_DEVICE="cpu"))) == "ok"
    assert unread(judge(ID, *ends("tcp,self", hosts=("a", "a")))) == [(P, "host.gpus"), (D, "host.gpus")]


@pytest.mark.parametrize(
    ("devices", "says", "told"),
    [
        ("mlx5_0:1", "ok", "mlx5_0:1"),
        ("mlx5_0", "ok", "mlx5_0"),
        ("eth0", "ok", "eth0"),
        ("eth1", "fail", "eth1 is down"),
        ("mlx5_9:1", "fail", "not a device of this host"),
        ("lo", "fail", "peers are on other hosts"),
        ("all", "ok", ""),
    ],
)
def test_named_devices(devices: str, says: str, told: str) -> None:
    found = judge(ID, *ends(None, devices, host__rdma=rdma()))
    assert verdict(found) == says
    assert told in f"{values(found)} {because(found)}"


def test_a_named_port_that_is_down() -> None:
    found = judge(ID, *ends(None, "mlx5_0:1", host__rdma=rdma(state="DOWN")))
    assert "mlx5_0:1 is DOWN" in str(values(found))


def test_loopback_is_right_on_one_host() -> None:
    assert verdict(judge(ID, *ends("tcp", "lo", ("a", "a"), VLLM_TARGET_DEVICE="cpu"))) == "ok"


def test_devices_that_were_not_read_are_unknown() -> None:
    assert (P, "host.net_devices") in unread(judge(ID, *ends(None, "mlx5_0:1")))


def test_what_was_not_read_is_unknown() -> None:
    nixl = {"kv_connector": "NixlConnector"}
    assert (P, "UCX_TLS") in unread(judge(ID, nixl, nixl))
    assert unread(judge(ID)) == [(P, "kv_connector"), (D, "kv_connector")]
    assert (f"{P}>{D}", "host.name") in unread(judge(ID, *ends("rc", hosts=("", ""))))


def test_other_transports_are_not_judged() -> None:
    facts = engine("a", backends='["LIBFABRIC"]')
    assert verdict(judge(ID, facts, facts)) == "not-applicable"


def test_golden() -> None:
    left, right = ends("tcp,cuda_copy", "mlx5_1:1", host__rdma=rdma())
    assert verdict(golden_preflight(ID, seen(left, right))) == "fail"
