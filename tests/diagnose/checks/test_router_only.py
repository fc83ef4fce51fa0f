"""router/only: clients fail or wait while the engines are well."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.frame import Event, EventKind
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, line, one, sound, view

ID = "router/only"
WORKERS = ("prefill-0", "decode-0", "router-0")


def failing(failed: Points, more: Given | None = None) -> Given:
    clean: Given = {"prefill-0": {"request_failure": (0, 0)}, "decode-0": {"request_failure": (0, 0)}}
    return but(but(but(sound(), clean), {"client": {"request_failure": failed}}), more or {})


@pytest.mark.parametrize(("failed", "fires"), [(6, False), (7, True)])
def test_one_in_a_hundred_fails(failed: float, fires: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=failing((0, failed))))
    assert causes(found) == (["keepalive-mismatch", "router-fault"] if fires else [])


@pytest.mark.parametrize(("failed", "thin"), [(31, True), (33, False)])
def test_a_thin_stream_of_failures_points_to_idle_connections(failed: float, thin: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=failing((0, failed))))
    assert ("keepalive-mismatch" in causes(found)) is thin
    assert bool(one(found, cause="router-fault").against) is thin


@pytest.mark.parametrize("signal", ["request_failure", "kv_transfer_failures"])
def test_failures_of_the_engines_own_clear_the_router(signal: str) -> None:
    given = failing((0, 60), {"decode-0": {signal: (0, 60)}})
    found = ask(ID, view(workers=WORKERS, series=given))
    assert (causes(found), causes(found, Status.CLEAR)) == ([], ["router-fault"])


def test_engines_that_count_nothing_leave_it_open() -> None:
    given = failing((0, 60), {"decode-0": {"request_failure": None}})
    found = one(ask(ID, view(workers=WORKERS, series=given)), Status.UNKNOWN)
    assert found.missing[0].signal == "request_failure"


def test_resets_in_the_log() -> None:
    given = failing((0, 60), {"decode-0": {"request_failure": None}})
    logs = [line("router-0", "read: Connection reset by peer")]
    assert groups(one(ask(ID, view(workers=WORKERS, series=given, logs=logs)))) == {"resets"}
    old = [line("router-0", "read: Connection reset by peer", -301)]
    assert causes(ask(ID, view(workers=WORKERS, series=given, logs=old))) == []


@pytest.mark.parametrize(("server", "wrong"), [("90", True), ("91", False)])
def test_the_server_must_keep_connections_longer_than_the_pool(server: str, wrong: bool) -> None:
    facts = {"decode-0": {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": server}, "router-0": {"keepalive_timeout_s": "90"}}
    found = ask(ID, view(workers=WORKERS, series=failing((0, 20)), facts=facts))
    kept = one(found, cause="keepalive-mismatch")
    assert ("keep-alive" in groups(kept)) is wrong
    assert ([w.group for w in kept.against] == ["keep-alive"]) is not wrong


def slow(client: Points, legs: tuple[Points, Points] = (0.3, 0.2)) -> Given:
    return but(
        sound(),
        {
            "client": {"ttft_seconds.p95": client},
            "prefill-0": {"ttft_seconds.p95": legs[0]},
            "decode-0": {"ttft_seconds.p95": legs[1]},
        },
    )


@pytest.mark.parametrize(("client", "fires"), [(1.05, True), (1.0, False)])
def test_first_tokens_within_the_promise_are_not_asked_about(client: float, fires: bool) -> None:
    assert bool(ask(ID, view(workers=WORKERS, series=slow(client)))) is fires


@pytest.mark.parametrize(("prefill", "fires"), [(0.79, True), (0.81, False)])
def test_twice_the_sum_of_the_engines_own_legs(prefill: float, fires: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=slow(2.0, (prefill, 0.2))))
    assert causes(found) == (["router-fault"] if fires else [])
    assert bool(causes(found, Status.CLEAR)) is not fires


def test_without_an_engine_leg_it_says_nothing() -> None:
    assert ask(ID, view(workers=WORKERS, series=slow(9.0, (None, 0.2)))) == ()


def test_report() -> None:
    report = golden(ID, view(workers=WORKERS, series=slow((0.6, 4.0))))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("router-fault", ID)
    assert "scale-out-prefill" in [d.action for d in report.top.do_not]


def test_requests_that_a_replaced_worker_lost_are_not_laid_to_the_router() -> None:
    rolled = [Event(t_s=-60.0, kind=EventKind.ROLLOUT, worker="decode-0")]
    found = ask(ID, view(workers=WORKERS, series=failing((0, 20)), events=rolled))
    assert (causes(found), causes(found, Status.CLEAR)) == ([], ["router-fault"])


@pytest.mark.parametrize(("leg", "against"), [(0.2, False), (3.0, True)])
def test_requests_that_fail_while_others_wait_in_the_engines_may_have_been_turned_away(
    leg: float, against: bool
) -> None:
    late = {
        "client": {"ttft_seconds.p95": (0.4, 4.0)},
        "prefill-0": {"ttft_seconds.p95": leg},
        "decode-0": {"ttft_seconds.p95": 0.1},
    }
    found = one(ask(ID, view(workers=WORKERS, series=failing((0, 100), late))), cause="router-fault")
    assert ("legs" in [w.group for w in found.against]) is against
