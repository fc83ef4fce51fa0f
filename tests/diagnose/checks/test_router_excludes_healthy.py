"""router/excludes-healthy: what the router thinks of a worker beside what the worker says of itself."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.frame import Event, EventKind
from pdops.model.report import Verdict
from pdops.model.view import Health, Presence
from tests.diagnose.build import Given, Points, ask, but, canary, causes, golden, groups, one, restart, sound, view

ID = "router/excludes-healthy"
TWO = ("prefill-0", "decode-0", "decode-1")


def judged(state: Points = None, health: Points = None, more: Given | None = None) -> Given:
    own = {"router_breaker_state": state, "worker_health": health}
    return but(but(sound(1, 2), {"decode-0": own}), more or {})


@pytest.mark.parametrize(("state", "fires"), [(0.0, False), (0.5, False), (1.0, True), (2.0, True)])
def test_an_open_or_half_open_breaker(state: float, fires: bool) -> None:
    found = ask(ID, view(workers=TWO, series=judged((0.0, state))))
    assert causes(found) == (["breaker-open"] if fires else [])
    assert bool(causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize(("health", "fires"), [(1.0, False), (0.5, False), (0.4, True), (0.0, True)])
def test_a_probe_that_calls_it_dead(health: float, fires: bool) -> None:
    found = ask(ID, view(workers=TWO, series=judged(health=(1.0, health))))
    assert causes(found) == (["health-check-misfire"] if fires else [])


@pytest.mark.parametrize("presence", [Presence.DOWN, Presence.STALE, Presence.NEVER])
def test_a_worker_that_is_away_is_rightly_left_out(presence: Presence) -> None:
    seen = view(workers=TWO, series=judged(1.0), health={"decode-0": Health(presence, why="refused")})
    assert causes(ask(ID, seen)) == []


def flapping(times: int) -> list[tuple[float, float]]:
    found = [(-900.0, 1.0)]
    for n in range(times):
        found += [(-800.0 + 200 * n, 0.0), (-740.0 + 200 * n, 1.0)]
    return [*found, (0.0, 1.0)]


@pytest.mark.parametrize(("times", "fires"), [(2, False), (3, True)])
def test_a_probe_that_calls_it_dead_and_well_in_turns(times: int, fires: bool) -> None:
    found = ask(ID, view(workers=TWO, series=judged(health=flapping(times))))
    assert causes(found) == (["health-check-misfire"] if fires else [])
    if fires:
        assert "left out 3 times" in [w.evidence.observed for w in one(found).for_]


def test_its_own_failures_speak_against_it() -> None:
    given = judged(1.0, more={"decode-0": {"kv_transfer_failures": (0, 4)}})
    assert [w.group for w in one(ask(ID, view(workers=TWO, series=given))).against] == ["ill"]


@pytest.mark.parametrize(("t_s", "rolls"), [(-299.0, True), (-301.0, False)])
def test_a_worker_that_is_left_out_while_its_pool_restarts_one_by_one_may_be_drained(t_s: float, rolls: bool) -> None:
    found = ask(ID, view(workers=TWO, series=judged(health=(1.0, 0.0)), events=[restart("decode-1", t_s)]))
    assert ("rollout" in [w.group for w in one(found).against]) is rolls


def test_if_only_the_router_speaks_it_decides_nothing() -> None:
    seen = view(workers=TWO, series={"decode-0": {"router_breaker_state": 1.0}})
    found = one(ask(ID, seen))
    assert [m.signal for m in found.missing] == ["running_requests"]
    assert groups(found) == {"excluded"}


def test_a_right_canary_through_it_supports_it() -> None:
    seen = view(workers=TWO, series=judged(1.0), probes=[canary("prefill-0>decode-0", ok=True)])
    assert "canary" in groups(one(ask(ID, seen)))


def pairs(failed: Points = (3, 0), stuck: Points = (1e9, 0), others: float = 5e8) -> Given:
    given: dict[str, dict[str, Points]] = {
        f"pair:prefill-{p}>decode-{d}": {"kv_transfer_bytes": (1e9, others)} for p in (0, 1) for d in (0, 1)
    }
    given["pair:prefill-0>decode-0"] = {"kv_transfer_bytes": stuck, "kv_transfer_failures": failed}
    return given


FOUR = ("prefill-0", "prefill-1", "decode-0", "decode-1")


def test_a_pair_that_stopped_after_a_failure_while_both_ends_move_kv_with_others() -> None:
    found = one(ask(ID, view(workers=FOUR, series=pairs())))
    assert (found.cause, [str(s) for s in found.scopes]) == ("sticky-blacklist", ["prefill-0>decode-0"])
    assert found.cap < 0.9


@pytest.mark.parametrize(
    "given", [pairs(failed=(0, 0)), pairs(stuck=(1e9, 1e6)), pairs(others=0), pairs(stuck=(0, 0)), pairs(failed=None)]
)
def test_no_blacklist_without_a_failure_a_stop_or_a_neighbour(given: Given) -> None:
    assert causes(ask(ID, view(workers=FOUR, series=given))) == []


def test_a_router_that_tells_nothing_is_not_judged() -> None:
    assert ask(ID, view(workers=TWO, series=sound(1, 2))) == ()


def test_report() -> None:
    more = {"client": {"request_failure": (0, 300), "request_success": (1200, 150)}}
    given = but(judged((0.0, 1.0), more=more), {"decode-1": {"router_breaker_state": (0.0, 1.0)}})
    report = golden(ID, view(workers=TWO, series=given))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("breaker-open", ID)


@pytest.mark.parametrize(("t_s", "rolls"), [(-599.0, True), (-601.0, False)])
def test_a_rollout_of_another_worker_speaks_against_it_for_longer_than_a_restart(t_s: float, rolls: bool) -> None:
    rolled = [Event(t_s=t_s, kind=EventKind.ROLLOUT, worker="decode-1")]
    found = one(ask(ID, view(workers=TWO, series=judged(health=(1.0, 0.0)), events=rolled)))
    assert ("rollout" in [w.group for w in found.against]) is rolls


@pytest.mark.parametrize(("t_s", "fires"), [(-59.0, False), (-61.0, True)])
@pytest.mark.parametrize("kind", [EventKind.RESTART, EventKind.ROLLOUT, EventKind.SCALE_OUT])
def test_a_worker_that_was_just_begun_is_not_yet_asked_by_the_router(kind: EventKind, t_s: float, fires: bool) -> None:
    begun = [Event(t_s=t_s, kind=kind, worker="decode-0")]
    found = ask(ID, view(workers=TWO, series=judged(health=(1.0, 0.0)), events=begun))
    assert (causes(found) == ["health-check-misfire"]) is fires


@pytest.mark.parametrize(("since_s", "fires"), [(10.0, False), (20.0, True)])
def test_a_worker_must_be_left_out_for_some_while(since_s: float, fires: bool) -> None:
    seen = [(-900.0, 1.0), *((float(t), 1.0 if t < -since_s else 0.0) for t in range(-30, 1, 5))]
    found = ask(ID, view(workers=TWO, series=judged(health=seen)))
    assert (causes(found) == ["health-check-misfire"]) is fires


def test_what_ended_and_began_anew_was_rightly_called_dead() -> None:
    begun = [restart("decode-0", -735.0)]
    assert causes(ask(ID, view(workers=TWO, series=judged(health=flapping(3)), events=begun))) == []
    assert causes(ask(ID, view(workers=TWO, series=judged(health=flapping(4)), events=begun))) != []
