"""startup/store: answers, has an address peers reach, survives a restart, has room."""

from __future__ import annotations

import pytest

from tests.diagnose.build import causes, golden_preflight, unread, verdict
from tests.diagnose.hostfacts import engine, judge, seen

ID = "startup/store"
Side = dict[str, str | None]
SOUND: Side = {
    "reachable": "true",
    "local_hostname": "10.0.0.9",
    "ha_mode": "false",
    "client_ttl_s": "10",
    "restart_time_s": "5",
    "segment_total_bytes": "1000",
    "segment_free_bytes": "900",
    "host.name": "s",
}


def store(hosts: str = "ab", **more: str | None) -> tuple[str, list[str], list[tuple[str | None, str]]]:
    facts = SOUND | {key.replace("__", "."): value for key, value in more.items()}
    found = judge(ID, engine(hosts[0]), engine(hosts[1]), store=facts)
    return verdict(found), causes(found), unread(found)


def test_sound() -> None:
    assert store() == ("ok", [], [])


@pytest.mark.parametrize("answer", ["false", "refused", "timeout (from here)"])
def test_it_does_not_answer(answer: str) -> None:
    assert store(reachable=answer)[:2] == ("fail", ["kvstore-down"])


@pytest.mark.parametrize("answer", ["true", "ok", "ok (from here)"])
def test_it_answers(answer: str) -> None:
    assert store(reachable=answer)[0] == "ok"


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1:12345", "0.0.0.0"])
def test_an_address_that_peers_do_not_reach(address: str) -> None:
    assert store(local_hostname=address)[:2] == ("fail", ["handshake-address"])


def test_loopback_is_right_on_one_host() -> None:
    assert store("ss", local_hostname="127.0.0.1")[0] == "ok"
    assert store(local_hostname="127.0.0.1", host__name=None)[2] == [("store-0", "host.name")]


def test_the_address_of_an_engine_s_segment_counts() -> None:
    found = judge(ID, engine("a", local_hostname="127.0.0.1"), engine("b"), store=SOUND)
    assert causes(found) == ["handshake-address"]


@pytest.mark.parametrize(
    ("ttl", "spare", "says"),
    [("5", "false", "ok"), ("4.9", "false", "warn"), ("4.9", "true", "ok"), (None, "true", "ok")],
)
def test_a_restart_of_its_master(ttl: str | None, spare: str, says: str) -> None:
    assert store(client_ttl_s=ttl, ha_mode=spare)[0] == says


@pytest.mark.parametrize(
    ("total", "free", "says"),
    [("1000", "100", "ok"), ("1000", "99", "warn"), ("0", "0", "fail"), (None, "99", "unknown")],
)
def test_room(total: str | None, free: str, says: str) -> None:
    said = store(segment_total_bytes=total, segment_free_bytes=free)
    assert said[0] == says
    if says in ("warn", "fail"):
        assert said[1] == ["kvstore-full"]


def test_what_was_not_read_is_unknown() -> None:
    names = ["reachable", "local_hostname", "ha_mode", "segment_total_bytes"]
    assert unread(judge(ID, store={})) == [("store-0", name) for name in names]
    assert store(restart_time_s=None)[2] == [("store-0", "restart_time_s")]


def test_without_a_store_it_does_not_apply() -> None:
    assert verdict(judge(ID)) == "not-applicable"


def test_golden() -> None:
    facts = SOUND | {
        "reachable": "refused",
        "local_hostname": "localhost",
        "client_ttl_s": "2",
        "segment_free_bytes": "10",
    }
    assert verdict(golden_preflight(ID, seen(engine("a"), engine("b"), store=facts))) == "fail"
