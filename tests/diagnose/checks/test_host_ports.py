"""host/ports: one port for each listener, free or its own, and open to those who dial it."""

from __future__ import annotations

import pytest

from tests.diagnose.build import causes, golden_preflight, unread, values, verdict
from tests.diagnose.hostfacts import D, P, engine, judge, seen

ID = "host/ports"
PORT = "VLLM_NIXL_SIDE_CHANNEL_PORT"
FREE = {"host.port.8000": "free"}


def engines(
    left: str | None, right: str | None, hosts: tuple[str, str] = ("a", "a"), **more: str
) -> tuple[dict[str, str | None], ...]:
    return tuple(
        engine(h, **more) | FREE | {PORT: port, "UCX_TLS": "tcp"} for h, port in zip(hosts, (left, right), strict=True)
    )


def test_ports_of_their_own() -> None:
    assert verdict(judge(ID, *engines("5600", "5601"))) == "ok"


@pytest.mark.parametrize(
    ("left", "right", "clash"), [("5600", "5600", True), (None, None, True), (None, "5601", False)]
)
def test_the_same_port_on_one_host(left: str | None, right: str | None, clash: bool) -> None:
    found = judge(ID, *engines(left, right))
    assert (verdict(found) == "fail") is clash
    if clash:
        assert {scope for scope, _, _ in values(found)} == {P, D}


def test_the_same_port_on_two_hosts_is_fine() -> None:
    assert verdict(judge(ID, *engines("5600", "5600", ("a", "b")))) == "ok"


def test_the_same_port_at_two_addresses_of_one_host_is_fine() -> None:
    left, right = engines("5600", "5600")
    name = "VLLM_NIXL_SIDE_CHANNEL_HOST"
    assert verdict(judge(ID, left | {name: "10.0.0.1"}, right | {name: "10.0.0.2"})) == "ok"
    assert verdict(judge(ID, left | {name: "10.0.0.1"}, right | {name: "0.0.0.0"})) == "fail"


@pytest.mark.parametrize(("second", "clash"), [("5601", True), ("5602", False)])
def test_each_rank_takes_a_port(second: str, clash: bool) -> None:
    assert (verdict(judge(ID, *engines("5600", second, data_parallel_size="2"))) == "fail") is clash


@pytest.mark.parametrize("port", ["0", "65536", "auto"])
def test_no_port_at_all(port: str) -> None:
    assert (P, PORT, port) in values(judge(ID, *engines(port, "5601")))


def test_the_last_rank_must_fit_too() -> None:
    assert verdict(judge(ID, *engines("65534", "5600", data_parallel_size="2"))) == "ok"
    assert verdict(judge(ID, *engines("65535", "5600", data_parallel_size="2"))) == "fail"


def test_the_same_port_with_unknown_hosts_is_unknown() -> None:
    found = judge(ID, *engines("5600", "5600", ("", "")))
    assert verdict(found) == "unknown"
    assert {(P, "host.name"), (D, "host.name")} <= set(unread(found))


def test_pods_of_one_node_have_ports_of_their_own() -> None:
    left, right = (e | {"host.node": "n", "host.network": "pod"} for e in engines("5600", "5600"))
    assert verdict(judge(ID, left, right)) == "ok"
    assert verdict(judge(ID, left | {"host.network": "host"}, right | {"host.network": "host"})) == "fail"


def test_a_port_that_another_process_holds() -> None:
    left, right = engines("5600", "5601")
    found = judge(ID, left | {"host.port.8000": "taken by nginx (pid 7)"}, right)
    assert values(found) == [(P, "host.port.8000", "taken by nginx (pid 7)")]
    assert verdict(judge(ID, left | {"host.port.8000": "ours"}, right)) == "ok"


@pytest.mark.parametrize(
    ("answer", "state", "says"),
    [
        ("ok", "ours", "ok"),
        ("refused", "ours", "fail"),
        ("refused", "free", "unknown"),
        ("timeout (from here)", "ours", "unknown"),
        (None, "ours", "unknown"),
    ],
)
def test_what_the_router_reaches(answer: str | None, state: str, says: str) -> None:
    left, right = (e | {"host.port.8000": state} for e in engines("5600", "5601"))
    found = judge(ID, left, right, router={f"reach.{P}.http": answer, f"reach.{D}.http": "ok", "host.port.1": "ours"})
    assert verdict(found) == says
    if says == "fail":
        assert causes(found) == ["silent-local-prefill"]


def test_what_was_not_read_is_unknown() -> None:
    nixl = {"kv_connector": "NixlConnector"}
    assert set(unread(judge(ID, nixl, nixl))) == {(n, f) for n in (P, D) for f in (PORT, "host.port")}


@pytest.mark.parametrize(("port", "says"), [(None, "fail"), ("8998", "fail"), ("8999", "ok"), ("70000", "fail")])
def test_sglang_s_bootstrap_port(port: str | None, says: str) -> None:
    facts: dict[str, str | None] = {"disaggregation_transfer_backend": "nixl", "host.name": "a", "host.port.1": "ours"}
    more = {"prefill-1": facts | {"disaggregation_bootstrap_port": port}}
    found = judge(ID, facts, facts, more=more, engine_name="sglang")
    assert verdict(found) == says
    unknown = judge(ID, {"host.port.1": "ours"}, facts, engine_name="sglang")
    assert unread(unknown) == [(P, "disaggregation_bootstrap_port")]


def test_golden() -> None:
    left, right = engines("5600", "5600")
    router = {f"reach.{P}.http": "refused", f"reach.{D}.http": "ok"}
    found = golden_preflight(ID, seen(left | {"host.port.8000": "ours"}, right, router=router))
    assert verdict(found) == "fail"
