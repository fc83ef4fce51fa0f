"""decode/kv-exhaustion: preemptions, or a full pool with requests that wait for it."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "decode/kv-exhaustion"


def decode(usage: Points = 0.4, preempted: Points = (0, 0), waiting: Points = 0.0, **more: Points) -> Given:
    given = {"kv_cache_usage": usage, "preemptions": preempted, "queue_depth_capacity": waiting, **more}
    return but(sound(), {"decode-0": given})


def test_one_preemption_fires() -> None:
    found = one(ask(ID, view(series=decode((0.5, 0.95), (0, 1)))))
    assert (found.cause, found.verdict) == ("decode-kv-exhaustion", Verdict.OVERLOAD)
    assert groups(found) == {"preempted", "full"}


@pytest.mark.parametrize(("usage", "fires"), [(0.9, False), (0.91, True)])
def test_nine_tenths_with_a_queue(usage: float, fires: bool) -> None:
    found = ask(ID, view(series=decode((0.5, usage), waiting=(0, 4))))
    assert bool(causes(found)) is fires


@pytest.mark.parametrize(("waiting", "fires"), [(1.0, False), (1.1, True)])
def test_a_full_pool_needs_a_queue(waiting: float, fires: bool) -> None:
    found = ask(ID, view(series=decode((0.5, 0.95), waiting=(0, waiting))))
    assert bool(causes(found)) is fires
    assert bool(causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize(("usage", "against"), [(0.5, 0), (0.49, 1)])
def test_preemptions_with_a_half_empty_pool_are_odd(usage: float, against: int) -> None:
    assert len(one(ask(ID, view(series=decode(usage, (0, 5))))).against) == against


@pytest.mark.parametrize(("length", "longer"), [(300.0, False), (301.0, True)])
def test_outputs_half_as_long_again_are_told(length: float, longer: bool) -> None:
    given = decode((0.5, 0.95), (0, 5), **{"output_length.mean": (200.0, length)})
    assert ("outputs" in groups(one(ask(ID, view(series=given))))) is longer


def test_clear_says_only_what_was_measured() -> None:
    assert one(ask(ID, view(series=decode())), Status.CLEAR).because == "KV in use at most 40%, no preemption"
    assert one(ask(ID, view(series=decode(preempted=None))), Status.CLEAR).because == "KV in use at most 40%"


@pytest.mark.parametrize(("preempted", "waiting", "missing"), [(None, 0.0, "preemptions"), ((0, 0), None, "queue")])
def test_a_full_pool_without_the_rest_is_not_clear(preempted: Points, waiting: Points, missing: str) -> None:
    found = one(ask(ID, view(series=decode(0.95, preempted, waiting))), Status.UNKNOWN)
    assert found.missing[0].signal.startswith(missing)


@pytest.mark.parametrize(("running", "fires"), [(4.0, False), (3.9, True)])
def test_a_full_pool_in_which_half_as_many_run_is_stalled(running: float, fires: bool) -> None:
    found = ask(ID, view(series=decode((0.5, 0.95), running_requests=(8.0, running))))
    assert bool(causes(found)) is fires


def test_without_usage_it_says_nothing() -> None:
    assert ask(ID, view(series=decode(None))) == ()


def test_pool_totals_are_enough() -> None:
    given = {"pool:decode": {"kv_cache_usage": (0.5, 0.97), "preemptions": (0, 30)}}
    assert [str(s) for s in one(ask(ID, view(series=given))).scopes] == ["pool decode"]


def test_report() -> None:
    given = decode((0.5, 0.98), (0, 60), (0, 7))
    latency = {"client": {"itl_seconds.p95": (0.02, 0.3)}, "decode-0": {"itl_seconds.mean": (0.02, 0.15)}}
    report = golden(ID, view(series=but(given, latency)))
    assert report.verdict is Verdict.OVERLOAD
    assert report.top is not None
    assert report.top.cause == "decode-kv-exhaustion"
    assert "scale-out-prefill" in [d.action for d in report.top.do_not]


@pytest.mark.parametrize(("running", "waiting", "verdict"), [(0.0, 5.0, "fault"), (2.0, 5.0, "overload")])
def test_a_pool_in_which_nothing_runs_while_requests_wait_is_no_overload(
    running: float, waiting: float, verdict: str
) -> None:
    given = decode(preempted=(0, 3), running_requests=(8.0, running), decode_prealloc_queue_depth=(0.0, waiting))
    found = one(ask(ID, view(series=given)))
    assert found.verdict == verdict
    assert ("still" in groups(found)) is (verdict == "fault")


@pytest.mark.parametrize(("full", "named"), [(2, ["decode-0"]), (3, ["pool decode"])])
def test_where_most_lack_room_it_is_the_pool(full: int, named: list[str]) -> None:
    given = {f"decode-{i}": {"kv_cache_usage": 0.75 if i < full else 0.3} for i in range(4)}
    given["decode-0"]["preemptions"] = (0, 4)  # type: ignore[assignment]
    workers = ("prefill-0", *(f"decode-{i}" for i in range(4)))
    found = ask("decode/kv-exhaustion", view(workers=workers, series=but(sound(1, 4), given)))
    assert [str(s) for f in found for s in f.scopes if f.status is Status.FIRED] == named
