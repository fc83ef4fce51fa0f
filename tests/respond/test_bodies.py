"""Recorded deliveries, one after another: how many runs they make, and what is known after."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pdops.respond.alerts import Invalid, Listed, read_delivery, read_list
from pdops.respond.episodes import Made
from pdops.respond.intake import ABSENT_S
from pdops.runbook import audit
from pdops.runbook.model import Mode
from pdops.runbook.states import RunState
from tests.respond.kit import ADD, CLUSTER, Desk

QUEUE = "PDPrefillQueueing"
MINE = ADD.model_copy(
    update={"triggers": ADD.triggers.model_copy(update={"alerts": (QUEUE, "PDPrefillQueueHigh", "PDKvTimeout")})}
)
BODIES = sorted(
    p for p in (Path(__file__).parents[2] / "fixtures" / "alertmanager").glob("*/*.json") if "api-" not in p.name
)


class Played(Desk):
    """A desk whose runs wait for approval, so that nothing but deliveries changes them."""

    def __init__(self, folder: Path, fixtures: Path) -> None:
        super().__init__(folder, runbooks=(MINE,), modes={"add-prefill": Mode.APPROVE})
        self.bodies = fixtures / "alertmanager"

    def play(self, *names: str, date: str = "2026-11-30") -> list[int]:
        """Deliver bodies, planning after each; return how many alerts of each were new."""
        new = []
        for name in names:
            sent = (self.bodies / date / f"{name}.json").read_bytes()
            new.append(self.intake.take(read_delivery(sent), "alertmanager").new)
            self.later(1.0)
        return new

    def list(self, name: str) -> Listed:
        return read_list((self.bodies / "2026-11-30" / f"{name}.json").read_bytes(), None, CLUSTER)

    def states(self) -> list[RunState]:
        return [r.state for r in self.runs()]


@pytest.fixture
def desk(tmp_path: Path, fixtures: Path) -> Iterator[Played]:
    made = Played(tmp_path, fixtures)
    yield made
    assert audit.verify(made.journal).problems == ()
    made.journal.close()


@pytest.mark.parametrize("path", BODIES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_every_recorded_body_is_read_whole(path: Path) -> None:
    delivery = read_delivery(path.read_bytes())
    sent = json.loads(path.read_text())
    assert delivery.invalid == ()
    assert [a.status.value for a in delivery.alerts] == [a["status"] for a in sent["alerts"]]
    assert delivery.truncated == sent["truncatedAlerts"]


def test_there_are_enough_recorded_bodies() -> None:
    assert len([p for p in BODIES if p.parent.name == "2026-11-29"]) == 6
    assert len([p for p in BODIES if p.parent.name != "2026-11-29"]) >= 12


def test_a_group_that_grows_and_shrinks_is_one_run_until_all_of_it_is_resolved(desk: Played) -> None:
    assert desk.play("fires", "repeats", "group-grows") == [1, 0, 1]
    assert desk.states() == [RunState.PLANNED]
    assert desk.play("one-resolved-one-fires", "group-shrinks") == [1, 0]
    assert desk.states() == [RunState.PLANNED]
    assert desk.play("group-resolved") == [1]
    assert desk.states() == [RunState.ABORTED]
    assert desk.play("fires-again") == [1]
    assert desk.states() == [RunState.ABORTED, RunState.PLANNED]


def test_the_first_six_bodies_come_to_the_same(desk: Played) -> None:
    names = (
        "firing_single",
        "firing_group_2",
        "mixed_resolved_and_firing",
        "firing_after_resolved_delivered",
        "resolved_group",
    )
    new = desk.play(*names, date="2026-11-29")
    assert new == [1, 1, 1, 0, 1]
    assert {e.decision.made for e in desk.planner.episodes.all() if e.decision} == {Made.OTHER_CLUSTER}, (
        "pd-lab is another"
    )
    assert CLUSTER != "pd-lab"
    assert desk.runs() == ()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 1, 1), (0, 0, 2)])
def test_what_was_refused_and_comes_again_is_taken_once(order: tuple[int, ...], desk: Played) -> None:
    names = ("refused-first", "refused-again", "fires-again")
    desk.play(*(names[n] for n in order))
    assert (len(desk.runs()), desk.states()) == (1, [RunState.PLANNED])


def test_what_was_resolved_while_nobody_listened_ends_what_waits_and_begins_nothing(desk: Played) -> None:
    desk.play("fires-again", "resolved-while-down")
    assert desk.states() == [RunState.ABORTED]
    assert [e.firing for e in desk.planner.episodes.all()] == [False, False]


def test_bodies_out_of_order_begin_nothing_that_is_over(desk: Played) -> None:
    desk.play("group-resolved", "one-resolved-one-fires", "group-grows", "fires")
    assert desk.runs() == ()


def test_a_cut_group_says_how_much_is_missing_and_the_api_gives_it(desk: Played) -> None:
    assert desk.play("truncated") == [1]
    desk.intake.reconcile(desk.list("api-inhibited"))
    desk.planner.step()
    failing = [e for e in desk.planner.episodes.firing() if e.name == "PDKvTransferFailing"]
    listed = [a for a in desk.list("api-inhibited").alerts if a.name == "PDKvTransferFailing"]
    assert len(listed) == 3
    assert len(failing) == 1, "the others are inhibited, which is told and not begun"


def test_what_is_silenced_is_not_begun(desk: Played) -> None:
    listed = desk.list("api-silenced")
    assert listed.suppressed
    desk.intake.reconcile(listed)
    desk.step()
    assert desk.runs() == ()
    desk.play("fires-once-more")
    (episode,) = [e for e in desk.planner.episodes.firing() if e.name == QUEUE]
    assert episode.id in listed.suppressed
    assert (desk.made(QUEUE), desk.runs()) == (Made.SILENCED, ())
    desk.intake.reconcile(Listed(alerts=listed.alerts, suppressed=frozenset(), watchdog_at_s=None))
    desk.later()
    assert desk.states() == [RunState.PLANNED]


def test_a_restarted_alertmanager_tells_the_same_episodes(desk: Played) -> None:
    desk.play("fires-once-more", "fires-after-silence")
    before = len(desk.runs())
    desk.intake.reconcile(desk.list("api-after-restart"))
    desk.play("fires-after-restart")
    again = {e.id for e in desk.planner.episodes.all() if e.name == QUEUE}
    assert (len(again), len(desk.runs()), before) == (1, 1, 1)


def test_what_alertmanager_has_no_more_is_resolved_after_a_while(desk: Played) -> None:
    desk.play("fires")
    gone = Listed(alerts=(), suppressed=frozenset(), watchdog_at_s=None)
    desk.intake.reconcile(gone)
    desk.step()
    assert desk.states() == [RunState.PLANNED], "it may just have been started"
    desk.clock.advance(ABSENT_S)
    desk.intake.reconcile(gone)
    desk.step()
    assert desk.states() == [RunState.ABORTED]


def test_what_was_taken_as_over_and_is_listed_again_fires_again(desk: Played) -> None:
    desk.play("fires")
    alerts = read_delivery((desk.bodies / "2026-11-30" / "fires.json").read_bytes()).alerts
    gone = Listed(alerts=(), suppressed=frozenset(), watchdog_at_s=None)
    there = replace(gone, alerts=alerts)
    for states in (["aborted"], ["aborted"] * 2):
        desk.intake.reconcile(gone)
        desk.clock.advance(ABSENT_S)
        desk.intake.reconcile(gone)
        desk.step()
        assert sorted(desk.states()) == states
        desk.intake.reconcile(there)
        desk.later()
        assert sorted(desk.states()) == states, "a list from before its end says the same"
        desk.intake.reconcile(there)
        desk.later()
        assert sorted(desk.states()) == [*states, "planned"]
    desk.again()
    desk.deliver(
        *[
            {**a, "status": "resolved"}
            for a in json.loads((desk.bodies / "2026-11-30" / "fires.json").read_text())["alerts"]
        ]
    )
    desk.step()
    assert sorted(desk.states()) == ["aborted"] * 3


def test_what_is_listed_and_cannot_be_read_is_not_taken_as_gone(desk: Played) -> None:
    desk.play("fires")
    unclear = Listed(alerts=(), suppressed=frozenset(), watchdog_at_s=None, invalid=(Invalid("startsAt: -", "7"),))
    for _ in range(3):
        desk.intake.reconcile(unclear)
        desk.clock.advance(ABSENT_S)
    desk.step()
    assert (desk.states(), len(desk.planner.episodes.firing())) == ([RunState.PLANNED], 1)
    desk.intake.reconcile(replace(unclear, invalid=()))
    desk.clock.advance(ABSENT_S)
    desk.intake.reconcile(replace(unclear, invalid=()))
    assert desk.intake.episodes()[0].firing is False, "once all of it can be read"


def test_hostile_labels_are_text(desk: Played) -> None:
    desk.play("hostile-labels")
    (episode,) = [e for e in desk.planner.episodes.firing() if "reboot" in e.labels.get("worker", "")]
    assert "\n" not in episode.labels["worker"]
    assert desk.runs() == ()


def test_the_watchdog_is_heard_and_makes_nothing(tmp_path: Path, fixtures: Path) -> None:
    desk = Played(tmp_path, fixtures)
    desk.watchdog.limit_s = 60.0
    assert desk.play("watchdog") == [0]
    assert desk.watchdog.pulse().alive
    assert desk.planner.episodes.all() == ()
    desk.journal.close()
