"""transfer/failures: after a restart it is state, without one it is the wire."""

from __future__ import annotations

import pytest

from pdops.diagnose.engine import diagnose
from pdops.diagnose.finding import DECISIVE, WEAK, Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, ask, but, causes, golden, groups, line, one, restart, sound, view

ID = "transfer/failures"
WORKERS = ("prefill-0", "decode-0", "decode-1", "decode-2")


def failing(n: float = 1, more: Given | None = None) -> Given:
    return but(but(sound(1, 3), {"decode-0": {"kv_transfer_failures": (0, n)}}), more or {})


def test_one_failure_fires_and_names_the_worker() -> None:
    found = one(ask(ID, view(workers=WORKERS, series=failing())))
    assert found.cause == "transport-error"
    assert [str(s) for s in found.scopes] == ["decode-0"]


def test_the_one_sender_whose_kv_is_left_behind_names_the_pair() -> None:
    workers = ("prefill-0", "prefill-1", "decode-0", "decode-1")
    given = but(
        sound(2, 2), {"decode-0": {"kv_transfer_failures": (0, 9)}, "prefill-1": {"kv_transfer_expired": (0, 9)}}
    )
    found = one(ask(ID, view(workers=workers, series=given)))
    assert [str(s) for s in found.scopes] == ["prefill-1>decode-0"]
    both = but(given, {"prefill-0": {"kv_transfer_expired": (0, 2)}})
    assert [str(s) for s in one(ask(ID, view(workers=workers, series=both))).scopes] == ["decode-0"]


def test_a_worker_that_restarts_again_and_again_left_no_stale_state() -> None:
    events = [restart("decode-0", -200), restart("decode-0", -100)]
    found = one(ask(ID, view(workers=WORKERS, series=failing(), events=events)), cause="peer-restart-stale-state")
    assert {w.ratio for w in found.for_ if w.group == "restart"} == {WEAK}
    found = one(ask(ID, view(workers=WORKERS, series=failing(), events=events[:1])), cause="peer-restart-stale-state")
    assert {w.ratio for w in found.for_ if w.group == "restart"} == {DECISIVE}


def test_restarts_of_loops_alone_leave_it_less_sure() -> None:
    events = [restart("decode-0", -200), restart("decode-0", -100)]
    loop = one(ask(ID, view(workers=WORKERS, series=failing(), events=events)), cause="peer-restart-stale-state")
    events.append(restart("prefill-0", -150))
    also = one(ask(ID, view(workers=WORKERS, series=failing(), events=events)), cause="peer-restart-stale-state")
    assert loop.cap < also.cap


def test_is_clear_without_and_silent_when_nobody_counts() -> None:
    assert causes(ask(ID, view(workers=WORKERS, series=failing(0))), Status.CLEAR) == ["transport-error"]
    none = but(sound(1, 3), {f"decode-{i}": {"kv_transfer_failures": None} for i in range(3)})
    assert ask(ID, view(workers=WORKERS, series=none)) == ()


@pytest.mark.parametrize(("t_s", "stale"), [(-600.0, True), (-601.0, False)])
def test_failures_within_ten_minutes_of_a_restart(t_s: float, stale: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=failing(), events=[restart("prefill-0", t_s)]))
    assert ("peer-restart-stale-state" in causes(found)) is stale
    if stale:
        wire = one(found, cause="transport-error")
        assert [w.group for w in wire.against] == ["restart"]
        state = one(found, cause="peer-restart-stale-state")
        assert [d.action for d in state.do_not] == ["restart-victim"]


def test_pairs_are_told_where_the_source_tells_them() -> None:
    pairs = {f"pair:prefill-0>decode-{i}": {"kv_transfer_failures": (0, 4 if i == 0 else 0)} for i in range(3)}
    found = one(ask(ID, view(workers=WORKERS, series=but(sound(1, 3), pairs))))
    assert [str(s) for s in found.scopes] == ["prefill-0>decode-0"]
    assert "others" in groups(found)


def test_half_of_the_pairs_failing_is_no_longer_one_odd_pair() -> None:
    pairs = {f"pair:prefill-0>decode-{i}": {"kv_transfer_failures": (0, 4 if i < 2 else 0)} for i in range(4)}
    found = one(ask(ID, view(workers=(*WORKERS, "decode-3"), series=but(sound(1, 4), pairs))))
    assert "others" not in groups(found)


def test_report() -> None:
    more = {"client": {"request_failure": (0, 40)}}
    report = golden(ID, view(workers=WORKERS, series=failing(40, more), events=[restart("prefill-0", -200)]))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert report.top.cause == "peer-restart-stale-state"
    assert "restart-pair" in report.top.runbooks


RTR = "Failed to modify QP to RTR, check mtu, gid, peer lid, peer qp num"


def test_a_line_that_names_the_set_up_comes_before_the_wire() -> None:
    seen = view(workers=WORKERS, series=failing(), logs=[line("decode-0", RTR)])
    named = one(ask(ID, seen), cause="rdma-link-config")
    assert groups(named) == {"failures", "log"}
    assert one(ask(ID, seen), cause="transport-error").against
    report = diagnose(seen)
    assert report.top is not None
    assert report.top.cause == "rdma-link-config"


def test_a_line_that_only_may_tell_of_the_set_up_names_nothing() -> None:
    seen = view(workers=WORKERS, series=failing(), logs=[line("decode-0", "Failed to create QP")])
    assert causes(ask(ID, seen)) == ["transport-error"]
