"""host/side-channel: what is advertised leads to the worker from every peer, and decode gets in."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import golden_preflight, one, outcomes, unread, values, verdict
from tests.diagnose.hostfacts import PAIR, D, P, because, engine, judge, seen

ID = "host/side-channel"
HOST = "VLLM_NIXL_SIDE_CHANNEL_HOST"
REACH = f"reach.{P}.side_channel"


def two(
    address: str | None, reach: str | None = "ok", hosts: tuple[str, str] = ("a", "b"), **more: str
) -> tuple[object, ...]:
    prefill = engine(hosts[0], **more) | {HOST: address}
    return prefill, engine(hosts[1]) | {HOST: "10.0.0.2", REACH: reach}


def test_an_address_that_decode_reaches_is_right() -> None:
    found = judge(ID, *two("10.0.0.1"))
    assert verdict(found) == "ok"
    assert "prefill-0 10.0.0.1" in because(found)


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1", "127.1", "0.0.0.0", "::"])
def test_loopback_and_wildcards_do_not_lead_to_another_host(address: str) -> None:
    found = judge(ID, *two(address))
    assert verdict(found) == "fail"
    assert values(found)[0] == (P, HOST, address)


def test_a_variable_that_is_not_set_means_localhost() -> None:
    assert values(judge(ID, *two(None)))[0] == (P, HOST, "localhost (default)")


def test_loopback_is_right_when_all_peers_are_on_the_host() -> None:
    prefill, decode = two("127.0.0.1", hosts=("a", "a"))
    assert verdict(judge(ID, prefill, dict(decode) | {HOST: "127.0.0.1"})) == "ok"  # type: ignore[call-overload]


def test_loopback_of_a_pod_is_its_own() -> None:
    prefill, decode = two("127.0.0.1", hosts=("a", "a"))
    pod = {"host.network": "pod"}
    assert verdict(judge(ID, dict(prefill) | pod, dict(decode) | pod)) == "fail"  # type: ignore[call-overload]


def test_wildcard_is_wrong_even_on_one_host() -> None:
    assert verdict(judge(ID, *two("0.0.0.0", hosts=("a", "a")))) == "fail"


def test_loopback_with_unknown_hosts_is_unknown() -> None:
    found = judge(ID, *two("127.0.0.1", hosts=("", "b")))
    assert verdict(found) == "unknown"
    assert (P, "host.name") in unread(found)


@pytest.mark.parametrize("answer", ["refused", "timeout", "unresolved", "no route to host"])
def test_decode_that_does_not_get_in(answer: str) -> None:
    found = judge(ID, *two("10.0.0.1", answer))
    assert values(found) == [(PAIR, "reach.side_channel", answer)]
    assert one(found).verdict is Verdict.FAULT


def test_refused_by_a_worker_that_has_not_started_is_unknown() -> None:
    found = judge(ID, *two("10.0.0.1", "refused", host__port__5600="free"))
    assert verdict(found) == "unknown"
    assert "not started" in one(found, Status.UNKNOWN).missing[0].why


@pytest.mark.parametrize("answer", ["ok (from here)", "timeout (from here)"])
def test_what_only_pdops_own_host_saw_is_unknown(answer: str) -> None:
    assert unread(judge(ID, *two("10.0.0.1", answer))) == [(PAIR, "reach.side_channel")]


def test_from_here_counts_when_both_are_on_one_host() -> None:
    assert verdict(judge(ID, *two("10.0.0.1", "ok (from here)", hosts=("a", "a")))) == "ok"


def test_what_was_not_read_is_unknown() -> None:
    found = judge(ID, {"kv_connector": "NixlConnector"}, {"kv_connector": "NixlConnector"})
    assert unread(found) == [(P, HOST), (D, HOST), (PAIR, "reach.side_channel")]
    assert set(outcomes(found)) == {"unknown"}
    assert unread(judge(ID)) == [(P, "kv_connector"), (D, "kv_connector")]


def test_a_connector_without_nixl_has_no_side_channel() -> None:
    facts = {"kv_connector": "MooncakeConnector"}
    assert verdict(judge(ID, facts, facts)) == "not-applicable"


def test_sglang_has_none_either() -> None:
    facts = {"disaggregation_transfer_backend": "nixl"}
    assert verdict(judge(ID, facts, facts, engine_name="sglang")) == "not-applicable"


@pytest.mark.parametrize(("said", "lost"), [("read", False), ("partial", True)])
def test_an_environment_that_was_read_in_part_does_not_tell_what_is_not_set(said: str, lost: bool) -> None:
    prefill, decode = two(None)
    found = judge(ID, dict(prefill) | {"environment": said}, decode)  # type: ignore[call-overload]
    assert ((P, HOST) in unread(found)) is lost
    assert verdict(found) == ("unknown" if lost else "fail")


def test_nixl_under_a_multi_connector_has_one() -> None:
    multi = {"kv_connector": "MultiConnector", "kv_connector_children": '["NixlConnector", "MooncakeStoreConnector"]'}
    prefill, decode = two("127.0.0.1")
    assert verdict(judge(ID, dict(prefill) | multi, decode)) == "fail"  # type: ignore[call-overload]


def test_golden() -> None:
    found = golden_preflight(ID, seen(*two("127.0.0.1", "timeout")))  # type: ignore[arg-type]
    assert verdict(found) == "fail"
