"""startup/cold-start: recent starts and slow first tokens, with token gaps as ever."""

from __future__ import annotations

import pytest

from pdops.diagnose.engine import diagnose
from pdops.model.cluster import Slo
from pdops.model.frame import Event, EventKind
from pdops.model.report import Symptom, Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, one, restart, sound, view

ID = "startup/cold-start"


def slow(ttft: Points = (0.4, 5.0), itl: Points = 0.02) -> Given:
    return but(sound(), {"client": {"ttft_seconds.p95": ttft, "itl_seconds.p95": itl}})


def test_a_restart_and_slow_first_tokens() -> None:
    found = one(ask(ID, view(series=slow(), events=[restart("decode-0", -120)])))
    assert found.cause == "cold-start"
    assert [str(s) for s in found.scopes] == ["decode-0"]
    assert Symptom.STARTUP in found.symptoms


@pytest.mark.parametrize("kind", [EventKind.ROLLOUT, EventKind.SCALE_OUT])
def test_a_rollout_or_scale_out_of_a_pool(kind: EventKind) -> None:
    event = Event(t_s=-300, kind=kind, pool="prefill")
    found = one(ask(ID, view(series=slow(), events=[event])))
    assert [str(s) for s in found.scopes] == ["pool prefill"]


@pytest.mark.parametrize(("t_s", "fires"), [(-900.0, True), (-901.0, False)])
def test_warm_for_a_quarter_of_an_hour(t_s: float, fires: bool) -> None:
    found = ask(ID, view(series=slow(), events=[restart("decode-0", t_s)]))
    assert causes(found) == (["cold-start"] if fires else [])


@pytest.mark.parametrize(("ttft", "fires"), [(1.0, False), (1.01, True)])
def test_first_tokens_within_the_promise_are_fine(ttft: float, fires: bool) -> None:
    found = ask(ID, view(series=slow((0.4, ttft)), events=[restart("decode-0", -120)]))
    assert bool(found) is fires


def test_without_a_promise_history_is_the_measure() -> None:
    found = one(ask(ID, view(series=slow(), events=[restart("decode-0", -120)], slo=Slo())))
    assert [w.evidence.basis for w in found.for_ if w.group == "ttft"] == ["history"]


def test_long_token_gaps_are_another_story() -> None:
    assert ask(ID, view(series=slow(itl=(0.02, 0.2)), events=[restart("decode-0", -120)])) == ()


@pytest.mark.parametrize("name", ["router-0", "store-0"])
def test_a_router_or_store_that_restarts_warms_nothing_up(name: str) -> None:
    workers = ("prefill-0", "decode-0", name)
    assert ask(ID, view(workers=workers, series=slow(), events=[restart(name, -120)])) == ()


def test_without_token_gaps_a_recent_start_decides_nothing() -> None:
    found = one(ask(ID, view(series=slow(itl=None), events=[restart("decode-0", -120)])))
    assert found.cap < 0.5
    assert [m.signal for m in found.missing] == ["itl_seconds"]


def test_says_nothing_without_events_or_latency() -> None:
    assert ask(ID, view(series=slow())) == ()
    assert ask(ID, view(series=slow(ttft=None), events=[restart("decode-0", -120)])) == ()


QUEUED: Given = {"prefill-0": {"queue_depth": (0.2, 9.0)}}
LATE: dict[str, Given] = {
    "prefill-undersized": QUEUED,
    "ratio-wrong": but(QUEUED, {"decode-0": {"kv_cache_usage": 0.1}}),
    "transport-slow": {"decode-0": {"kv_transfer_bandwidth.mean": (5e9, 2e9)}},
}


@pytest.mark.parametrize("kind", [EventKind.RESTART, EventKind.ROLLOUT, EventKind.SCALE_OUT])
@pytest.mark.parametrize("cause", sorted(LATE))
def test_while_workers_warm_up_no_latency_is_judged(cause: str, kind: EventKind) -> None:
    seen = but(slow(), LATE[cause])
    without = diagnose(view(series=seen))
    assert cause in {h.cause for h in without.hypotheses} | {r.cause for r in without.ruled_out}
    report = diagnose(view(series=seen, events=[Event(t_s=-240, kind=kind, worker="prefill-0")]))
    assert report.top is not None
    assert report.top.cause == "cold-start"
    assert cause not in {h.cause for h in report.hypotheses}


def test_a_queue_while_warming_up_is_no_lack_of_prefill() -> None:
    queued = but(slow(), {"prefill-0": {"queue_depth": (0.2, 9.0)}})
    rollout = Event(t_s=-240, kind=EventKind.ROLLOUT, pool="prefill", revision="r2")
    report = golden(ID, view(series=queued, events=[rollout]))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert report.top.cause == "cold-start"
    assert "prefill-undersized" in [r.cause for r in report.ruled_out]


@pytest.mark.parametrize(("started", "against"), [("decode-0", ["stages"]), ("prefill-0", [])])
def test_warm_up_of_one_side_takes_no_time_on_the_other(started: str, against: list[str]) -> None:
    queue = {
        "prefill-0": {"queue_seconds.mean": (0.05, 4.0)},
        "pair:prefill-0>decode-0": {"handoff_seconds.mean": 0.1},
    }
    found = one(ask(ID, view(series=but(slow(), queue), events=[restart(started, -120)])))
    assert [w.group for w in found.against] == against


@pytest.mark.parametrize(
    ("kind", "sent", "against"),
    [
        (EventKind.SCALE_OUT, 0.0, True),
        (EventKind.SCALE_OUT, 9.0, False),
        (EventKind.RESTART, 0.0, False),
    ],
)
def test_a_worker_that_joined_and_is_sent_nothing_keeps_nobody_waiting(
    kind: EventKind, sent: float, against: bool
) -> None:
    given = but(slow(), {"decode-1": {"worker_selection": (0.0, sent)}})
    event = Event(t_s=-60.0, kind=kind, worker="decode-1")
    found = one(ask(ID, view(workers=("prefill-0", "decode-0", "decode-1"), series=given, events=[event])))
    assert ("worker_selection" in [w.evidence.signal for w in found.against]) is against
