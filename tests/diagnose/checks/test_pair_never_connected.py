"""pair/never-connected: a counter that still stands at zero, and somebody who asks."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, line, one, restart, sound, view

ID = "pair/never-connected"
PAIR = "pair:prefill-0>decode-0"
WRONG = "Remote NIXL agent engine ID mismatch. Expected a, received b"


def unmet(moved: Points = (0, 0), deferred: Points = (0, 5), more: Given | None = None) -> Given:
    given: Given = {"decode-0": {"kv_transfer_bytes": moved, "queue_depth_deferred": deferred}}
    return but(but(sound(), given), more or {})


def test_waiting_requests_and_no_byte_ever() -> None:
    found = one(ask(ID, view(series=unmet())), cause="handshake-address")
    assert found.cause == "handshake-address"
    assert groups(found) == {"never", "deferred"}
    assert [str(s) for s in found.scopes] == ["decode-0"]


@pytest.mark.parametrize(("start", "fires"), [(0.0, True), (1.0, False)])
def test_one_byte_long_ago_is_a_connection(start: float, fires: bool) -> None:
    still = [(-900.0, start), (-300.0, start), (0.0, start)]
    found = ask(ID, view(series=unmet(still)))
    assert bool(causes(found)) is fires
    assert bool(causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize(("deferred", "fires"), [(0.5, False), (0.6, True)])
def test_somebody_has_to_ask(deferred: float, fires: bool) -> None:
    assert bool(ask(ID, view(series=unmet(deferred=(0, deferred))))) is fires


@pytest.mark.parametrize("signal", ["kv_handshake_failures", "kv_transfer_failures"])
def test_failures_ask_as_well(signal: str) -> None:
    given = unmet(deferred=(0, 0), more={"decode-0": {signal: (0, 1)}})
    found = one(ask(ID, view(series=given)), cause="handshake-address")
    assert (found.cap > 0.9) is (signal == "kv_handshake_failures")


def test_a_handshake_failure_of_a_pair_counts_for_its_decode_worker() -> None:
    given = unmet(deferred=(0, 0), more={PAIR: {"kv_handshake_failures": (0, 2)}})
    found = one(ask(ID, view(series=given)))
    assert "handshake" in groups(found)


def test_a_log_line_asks_as_well() -> None:
    found = one(ask(ID, view(series=unmet(deferred=(0, 0)), logs=[line("decode-0", WRONG)])))
    assert [w.evidence.observed for w in found.for_ if w.group == "handshake"] == [WRONG]


def test_pairs_are_told_where_the_source_tells_them() -> None:
    other = "pair:prefill-0>decode-1"
    given = {PAIR: {"kv_transfer_bytes": (0, 0), "kv_handshake_failures": (0, 4)}, other: {"kv_transfer_bytes": (0, 9)}}
    found = ask(ID, view(workers=("prefill-0", "decode-0", "decode-1"), series=but(sound(1, 2), given)))
    assert [str(s) for s in one(found).scopes] == ["prefill-0>decode-0"]


def test_a_rate_of_zero_in_both_windows_is_never() -> None:
    given = but(unmet(moved=None), {"decode-0": {"kv_transfer_bytes.rate": (0.0, 0.0)}})
    assert "handshake-address" in causes(ask(ID, view(series=given)))


def test_without_bytes_it_is_unknown_when_handshakes_fail_and_else_silent() -> None:
    assert ask(ID, view(series=unmet(moved=None))) == ()
    failing = unmet(moved=None, more={"decode-0": {"kv_handshake_failures": (0, 3)}})
    assert one(ask(ID, view(series=failing)), Status.UNKNOWN).missing[0].signal == "kv_transfer_bytes"


@pytest.mark.parametrize(("t_s", "young"), [(-120.0, True), (-121.0, False)])
def test_a_worker_that_has_just_started_may_not_have_moved_any_yet(t_s: float, young: bool) -> None:
    found = one(ask(ID, view(series=unmet(), events=[restart("decode-0", t_s)])), cause="handshake-address")
    assert bool(found.against) is young
    other = one(ask(ID, view(series=unmet(), events=[restart("prefill-0", t_s)])), cause="handshake-address")
    assert other.against == ()


def test_kv_that_moved_before_a_restart_was_moved() -> None:
    """The counter starts again at zero with the process."""
    restarted = [(-900.0, 5e9), (-600.0, 8e9), (-290.0, 0.0), (0.0, 0.0)]
    assert causes(ask(ID, view(series=unmet(restarted)))) == []


def test_versions_that_do_not_fit_look_the_same_until_they_are_read_and_equal() -> None:
    assert causes(ask(ID, view(series=unmet()))) == ["handshake-address", "version-skew"]
    same = {name: {"version": "0.32.0"} for name in ("prefill-0", "decode-0")}
    assert causes(ask(ID, view(series=unmet(), facts=same))) == ["handshake-address"]
    failing = unmet(more={"decode-0": {"kv_handshake_failures": (0, 3)}})
    assert causes(ask(ID, view(series=failing))) == ["handshake-address"]


@pytest.mark.parametrize("moved", [(0, 0), None])
@pytest.mark.parametrize(("backends", "fires"), [('["UCX"]', True), ('["LIBFABRIC"]', False)])
def test_a_backend_that_does_not_suit_the_devices_keeps_kv_from_ever_moving(
    moved: Points, backends: str, fires: bool
) -> None:
    facts = {"kv_connector": "NixlConnector", "backends": backends, "host.rdma": '{"rdmap0s6": {}}'}
    found = ask(ID, view(series=unmet(moved), facts={"prefill-0": facts, "decode-0": facts}))
    assert ("transport-config" in causes(found)) is fires


def test_pool_totals_are_enough() -> None:
    given = {"pool:decode": {"kv_transfer_bytes": (0, 0), "queue_depth_deferred": (0, 12)}}
    assert [str(s) for s in one(ask(ID, view(series=given)), cause="handshake-address").scopes] == ["pool decode"]


def test_report() -> None:
    bypass: Given = {
        "decode-0": {
            "kv_handshake_failures": (0, 30),
            "kv_transfer_failures": (0, 30),
            "local_prefill_tokens": (0, 90_000),
            "external_kv_tokens": (0, 0),
            "kv_transfer_bandwidth.mean": None,
            "kv_transfer_seconds.mean": None,
        },
        "client": {"itl_seconds.p95": (0.02, 0.2)},
    }
    report = golden(ID, view(series=unmet(more=bypass), logs=[line("decode-0", WRONG)]))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert report.top.cause == "handshake-address"
    assert {"silent-local-prefill", "decode-undersized"} <= {r.cause for r in report.ruled_out}


def test_a_line_of_the_transport_s_set_up_says_that_the_address_was_found() -> None:
    text = "Failed to modify QP to RTR, check mtu, gid, peer lid, peer qp num"
    assert all(f.against for f in ask(ID, view(series=unmet(), logs=[line("decode-0", text)])))
    assert not any(f.against for f in ask(ID, view(series=unmet())))
