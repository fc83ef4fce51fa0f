"""What is made of an alert: by mode, by what the diagnosis says, by what is known, and once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pdops.errors import JournalError, RefusedError, UnreachableError, UsageError
from pdops.model.report import Verdict
from pdops.model.view import Presence
from pdops.respond.advice import PLANS
from pdops.respond.candidates import with_modes
from pdops.respond.episodes import Made
from pdops.respond.folding import FOLD_S
from pdops.respond.planner import RETRY_S
from pdops.respond.tokens import Person, Role
from pdops.runbook import audit
from pdops.runbook.claim import claimed
from pdops.runbook.encode import plan_from_json
from pdops.runbook.killswitch import KillSwitch
from pdops.runbook.load import parse_runbook, shipped
from pdops.runbook.model import Mode, Runbook
from pdops.runbook.plan import TTL_S
from pdops.runbook.states import RunState
from tests.respond.kit import ADD, CLUSTER, RESTART, Desk, alert, hypothesis
from tests.runbook.engine_kit import T0

BOB = Person("bob", Role.APPROVER)
DOWN = "PDDecodeWorkerDown"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    assert audit.verify(made.journal).problems == ()
    made.journal.close()


def test_an_automatic_runbook_runs_to_its_end_when_everything_agrees(desk: Desk) -> None:
    desk.deliver(alert())
    desk.step()
    (run,) = desk.runs()
    assert (run.state, run.requester, run.approver) == (RunState.DONE, "alertmanager", "respond")
    assert [e[1] for e in desk.world.effects] == ["pool.scale-out"]
    assert desk.made() is Made.STARTED


def test_seven_deliveries_of_one_alert_are_one_run(desk: Desk) -> None:
    taken = [desk.deliver(alert()) for _ in range(7)]
    assert [t.new for t in taken] == [1, 0, 0, 0, 0, 0, 0]
    for _ in range(3):
        desk.step()
        desk.deliver(alert())
        desk.later(700.0)
    assert len(desk.runs()) == len(desk.world.effects) == 1


def test_a_restart_between_deliveries_forgets_nothing(desk: Desk) -> None:
    desk.deliver(alert())
    desk.again()
    desk.deliver(alert())
    desk.step()
    desk.again()
    desk.deliver(alert())
    desk.step()
    assert len(desk.runs()) == 1


def test_what_fires_again_later_is_another_episode(desk: Desk) -> None:
    desk.deliver(alert())
    desk.step()
    desk.deliver(alert(status="resolved"))
    desk.clock.advance(700.0)
    desk.deliver(alert(starts_s=desk.clock.now()))
    desk.step()
    assert [r.state for r in desk.runs()] == [RunState.DONE, RunState.DONE]


def test_two_alerts_of_one_trouble_are_one_run(tmp_path: Path) -> None:
    desk = Desk(tmp_path, modes={"add-prefill": Mode.APPROVE})
    desk.deliver(alert(), alert("PDTtftHigh"))
    desk.step()
    (run,) = desk.runs()
    assert {desk.made(), desk.made("PDTtftHigh")} == {Made.WAITS, Made.JOINED}
    desk.deliver(alert(status="resolved"))
    desk.step()
    assert desk.journal.run(run.id).state is RunState.PLANNED, "the other alert still fires"
    desk.deliver(alert("PDTtftHigh", "resolved"))
    desk.step()
    assert desk.journal.run(run.id).state is RunState.ABORTED
    desk.journal.close()


def test_advice_is_a_plan_in_a_file_and_nobody_acts(tmp_path: Path) -> None:
    desk = Desk(tmp_path, modes={})
    desk.deliver(alert())
    desk.step()
    assert (desk.made(), desk.runs(), desk.world.effects) == (Made.ADVISED, (), [])
    (file,) = (tmp_path / PLANS).glob("*.json")
    assert file.stat().st_mode & 0o077 == 0
    assert plan_from_json(file.read_text(), path=str(file)).runbook == "add-prefill"
    desk.deliver(alert("PDTtftHigh"))
    desk.later()
    assert desk.made("PDTtftHigh") is Made.JOINED
    desk.journal.close()


def test_advice_of_long_ago_is_not_kept_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdops.respond.advice.KEPT", 2)
    desk = Desk(tmp_path, modes={})
    for _ in range(4):
        desk.clock.advance(1.0)
        desk.deliver(alert(starts_s=desk.clock.now()))
        desk.step()
        desk.deliver(alert(status="resolved", starts_s=desk.clock.now()))
    assert len(list((tmp_path / PLANS).iterdir())) == 2
    desk.journal.close()


def test_a_run_waits_for_approval_by_somebody_else(desk: Desk) -> None:
    desk.scene.names("decode-down", "decode-1")
    desk.deliver(alert(DOWN, worker="decode-1"), who="bob")
    desk.step()
    (run,) = desk.runs()
    assert (run.state, desk.made(DOWN)) == (RunState.PLANNED, Made.WAITS)
    with pytest.raises(RefusedError, match="somebody else"):
        desk.intake.approve(run.id, BOB)
    assert desk.world.effects == []
    desk.intake.approve(run.id, Person("eve", Role.APPROVER))
    desk.step()
    assert desk.journal.run(run.id).state is RunState.DONE
    assert [e[2] for e in desk.world.effects] == ["worker/decode-1/starts"]


def test_what_nobody_approves_ends_with_its_plan(desk: Desk) -> None:
    desk.scene.names("decode-down", "decode-1")
    desk.deliver(alert(DOWN))
    desk.step()
    desk.later(TTL_S + 1)
    (run,) = desk.runs()
    assert (run.state, "nobody approved" in run.why) == (RunState.REFUSED, True)
    desk.later()
    assert len(desk.runs()) == 1


def test_a_resolved_alert_cancels_what_waits_and_begins_nothing(desk: Desk) -> None:
    desk.scene.names("decode-down", "decode-1")
    desk.deliver(alert(DOWN))
    desk.step()
    desk.deliver(alert(DOWN, "resolved"))
    desk.step()
    (run,) = desk.runs()
    assert (run.state, run.why) == (RunState.ABORTED, "the alert is resolved")
    desk.deliver(alert(status="resolved"))
    desk.step()
    assert len(desk.runs()) == 1
    desk.deliver(alert(status="firing"))
    desk.step()
    assert len(desk.runs()) == 1, "news of what is over came late"


def test_a_run_that_began_goes_on_to_its_verification_when_the_alert_is_resolved(desk: Desk) -> None:
    desk.reached = lambda point: desk.deliver(alert(status="resolved")) if point == "after-effect" else None
    desk.deliver(alert())
    desk.step()
    desk.step()
    assert [r.state for r in desk.runs()] == [RunState.DONE]


@pytest.mark.parametrize("cause", ["transport-slow", "decode-undersized"])
def test_a_diagnosis_that_disagrees_is_said_and_nothing_is_done(cause: str, desk: Desk) -> None:
    desk.scene.found = (hypothesis(cause),)
    desk.deliver(alert())
    desk.step()
    assert (desk.made(), desk.runs()) == (Made.DISAGREES, ())
    assert desk.why() == f"the diagnosis says {cause} 0.90; this is for prefill-undersized"


def test_a_healthy_cluster_is_left_alone(desk: Desk) -> None:
    desk.scene.healthy()
    desk.deliver(alert())
    desk.step()
    assert (desk.made(), desk.runs()) == (Made.DISAGREES, ())


def test_an_alert_about_another_worker_than_the_diagnosis_disagrees(desk: Desk) -> None:
    desk.scene.names("decode-down", "decode-1")
    desk.deliver(alert(DOWN, worker="decode-0"))
    desk.step()
    assert (desk.made(DOWN), desk.runs()) == (Made.DISAGREES, ())
    assert desk.why(DOWN) == "the alert is about decode-0, the diagnosis about decode-1"


def test_a_label_that_names_nobody_says_nothing(desk: Desk) -> None:
    desk.scene.names("decode-down", "decode-1")
    desk.deliver(alert(DOWN, worker="{0.__class__}; reboot"))
    desk.step()
    assert [r.plan["parameters"] for r in desk.runs()] == [{"worker": "decode-1"}]


def test_what_was_not_known_is_looked_at_again(desk: Desk) -> None:
    desk.scene.verdict, desk.scene.found = Verdict.UNKNOWN, ()
    desk.deliver(alert())
    desk.step()
    assert (desk.made(), desk.runs()) == (Made.HELD, ())
    before = len(list(desk.journal.events()))
    for _ in range(5):
        desk.later()
    assert len(list(desk.journal.events())) == before, "the same news is written once"
    desk.scene.verdict, desk.scene.found = Verdict.OVERLOAD, (hypothesis(),)
    desk.later()
    assert [r.state for r in desk.runs()] == [RunState.DONE]


def _notes(desk: Desk) -> list[dict[str, Any]]:
    return [dict(e.body) for e in desk.journal.events("") if e.kind == "noted" and "episode" in e.body]


def _come_and_go(desk: Desk, looks: int) -> None:
    """Look so often, and find nothing out and that all is well by turns."""
    for look in range(looks):
        if look % 2:
            desk.scene.healthy()
        else:
            desk.scene.verdict, desk.scene.found = Verdict.UNKNOWN, ()
        desk.later()


def test_a_diagnosis_that_comes_and_goes_is_folded_and_told_as_a_number(desk: Desk) -> None:
    """Every look another answer: two notes, and then one with how often, when first and when last."""
    desk.deliver(alert())
    _come_and_go(desk, 40)
    assert [n["made"] for n in _notes(desk)] == ["held", "disagrees"]
    newest = desk.planner.newest[desk.episode().id]
    assert newest.made is Made.DISAGREES, "the last look is known all the same"
    desk.clock.advance(FOLD_S)
    desk.scene.verdict, desk.scene.found = Verdict.UNKNOWN, ()
    desk.later()
    *_, last = _notes(desk)
    assert last["made"] == "held"
    (repeat,) = last["repeats"]
    assert (repeat["made"], repeat["times"]) == ("held", 19)
    assert T0 < repeat["first_s"] < repeat["last_s"] < T0 + 41 * RETRY_S
    assert "in between: held 19 times" in last["say"]


def test_what_was_folded_is_written_down_when_the_alert_is_over(desk: Desk) -> None:
    desk.deliver(alert())
    _come_and_go(desk, 9)
    desk.deliver(alert(status="resolved"))
    desk.step()
    desk.step()
    notes = _notes(desk)
    assert [n["made"] for n in notes] == ["held", "disagrees", "disagrees"]
    assert [(r["made"], r["times"]) for r in notes[-1]["repeats"]] == [("held", 4)]
    assert "say" not in notes[-1], "people are not told of what is over"
    assert desk.planner.newest == {}


def test_what_was_folded_is_written_down_when_the_process_ends(desk: Desk) -> None:
    desk.deliver(alert())
    _come_and_go(desk, 9)
    desk.planner.close()
    notes = _notes(desk)
    assert [(r["made"], r["times"]) for r in notes[-1]["repeats"]] == [("held", 4)]
    assert "say" not in notes[-1]
    desk.again()
    assert desk.made() is Made.DISAGREES


@contextmanager
def _full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def fails(*_: object, **__: object) -> None:
        raise JournalError("the journal cannot be used", why="disk full", hint="-")

    with monkeypatch.context() as full:
        full.setattr("pdops.respond.planner.note", fails)
        yield


def test_what_could_not_be_written_down_is_not_taken_as_known(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.deliver(alert())
    _come_and_go(desk, 1)
    desk.scene.healthy()
    with _full_disk(monkeypatch), pytest.raises(JournalError, match="disk full"):
        desk.later()
    desk.later()
    assert [n["made"] for n in _notes(desk)] == ["held", "disagrees"]


def test_how_often_is_not_lost_when_it_cannot_be_written_down(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.deliver(alert())
    _come_and_go(desk, 9)
    desk.deliver(alert(status="resolved"))
    with _full_disk(monkeypatch), pytest.raises(JournalError, match="disk full"):
        desk.step()
    desk.step()
    desk.step()
    notes = _notes(desk)
    assert [[r["times"] for r in n.get("repeats", [])] for n in notes] == [[], [], [4]]


def test_what_comes_after_a_folded_time_is_a_run_like_any_other(desk: Desk) -> None:
    desk.deliver(alert())
    _come_and_go(desk, 6)
    desk.scene.verdict, desk.scene.found = Verdict.OVERLOAD, (hypothesis(),)
    desk.later()
    assert (desk.made(), [r.state for r in desk.runs()]) == (Made.STARTED, [RunState.DONE])


def test_nothing_is_done_without_data(desk: Desk) -> None:
    desk.scene.fails = UnreachableError("no target answered", hint="-")
    desk.deliver(alert())
    desk.step()
    assert (desk.made(), desk.runs()) == (Made.NO_DATA, ())


@pytest.mark.parametrize("presence", [Presence.STALE, Presence.NEVER, Presence.DOWN])
def test_nothing_is_done_on_old_data(presence: Presence, desk: Desk) -> None:
    desk.scene.presence |= {"decode-0": presence, "decode-1": presence}
    desk.deliver(alert())
    desk.step()
    assert (desk.made(), desk.runs()) == (Made.REFUSED, ())
    assert "data-fresh" in desk.why()


COLD = shipped("cold-start")
GUARDED = COLD.model_copy(update={"triggers": COLD.triggers.model_copy(update={"unanswered": False})})


@pytest.mark.parametrize(
    ("runbook", "away", "process", "made"),
    [
        (COLD, 4, "stopped", Made.WAITS),
        (COLD, 4, "running", Made.REFUSED),
        (COLD, 3, "stopped", Made.HELD),
        (GUARDED, 4, "stopped", Made.HELD),
        (RESTART, 4, "stopped", Made.HELD),
    ],
)
def test_what_starts_everything_is_planned_where_nothing_answers_and_nothing_else_is(
    runbook: Runbook, away: int, process: str, made: Made, tmp_path: Path
) -> None:
    desk = Desk(tmp_path, runbooks=(runbook,), modes={runbook.id: Mode.APPROVE})
    for worker in list(desk.scene.presence)[:away]:
        desk.scene.presence[worker] = Presence.DOWN
        desk.world.move(f"worker/{worker}/process", process)
        desk.world.move(f"worker/{worker}/serving", process == "running")
    desk.scene.verdict, desk.scene.found = Verdict.UNKNOWN, ()
    desk.deliver(alert("PDDecodeWorkerDown"))
    desk.planner.step()
    assert desk.made("PDDecodeWorkerDown") is made, desk.why("PDDecodeWorkerDown")
    desk.journal.close()


@pytest.mark.parametrize(
    ("subject", "value", "made"),
    [
        ("pool/prefill/rollout", True, Made.REFUSED),
        ("pool/prefill/owner", "hpa prefill", Made.REFUSED),
        ("pool/prefill/free", 0, Made.REFUSED),
        ("pool/prefill/rollout", None, Made.HELD),
        ("pool/prefill/owner", None, Made.HELD),
    ],
)
def test_a_pool_that_is_not_ours_or_not_at_rest_is_left_alone(
    subject: str, value: object, made: Made, desk: Desk
) -> None:
    desk.world.move(subject, value)  # type: ignore[arg-type]
    desk.deliver(alert())
    desk.step()
    assert (desk.made(), desk.runs()) == (made, ())


def test_nobody_is_taken_out_below_the_minimum(desk: Desk) -> None:
    desk.world.move("worker/decode-0/serving", False)
    desk.scene.names("decode-down", "decode-1")
    desk.deliver(alert(DOWN))
    desk.step()
    assert (desk.made(DOWN), desk.runs()) == (Made.REFUSED, ())


def test_several_that_could_be_meant_are_not_everybody(desk: Desk) -> None:
    desk.scene.verdict, desk.scene.found = Verdict.FAULT, (hypothesis("decode-down"),)
    desk.deliver(alert(DOWN))
    desk.step()
    assert (desk.made(DOWN), desk.runs()) == (Made.REFUSED, ())
    assert "several are meant" in desk.why(DOWN) or "nothing says which" in desk.why(DOWN)


def test_nothing_begins_while_frozen_and_it_goes_on_once_thawed(desk: Desk) -> None:
    switch = KillSwitch(desk.journal)
    switch.on("eve", "maintenance", CLUSTER)
    desk.deliver(alert())
    desk.step()
    assert (desk.made(), desk.runs(), desk.world.effects) == (Made.FROZEN, (), [])
    switch.off("eve", CLUSTER)
    desk.later()
    assert [r.state for r in desk.runs()] == [RunState.DONE]


def test_what_was_approved_before_a_freeze_does_not_begin_in_it(desk: Desk) -> None:
    desk.deliver(alert())
    desk.planner.step()
    KillSwitch(desk.journal).on("eve", "", CLUSTER)
    desk.runner.step()
    assert ([r.state for r in desk.runs()], desk.world.effects) == ([RunState.APPROVED], [])


def test_a_cool_down_is_waited_for(desk: Desk) -> None:
    desk.deliver(alert())
    desk.step()
    desk.deliver(alert("PDTtftHigh"))
    desk.step()
    assert (desk.made("PDTtftHigh"), "cool-down" in desk.why("PDTtftHigh")) == (Made.LATER, True)
    desk.world.move("pool/prefill/free", 1)
    desk.later(120.0)
    assert [r.state for r in desk.runs()] == [RunState.DONE, RunState.DONE]


def test_nothing_starts_by_itself_while_the_watchdog_is_silent(tmp_path: Path) -> None:
    desk = Desk(tmp_path, watchdog_s=60.0)
    desk.deliver(alert())
    desk.step()
    assert (desk.made(), desk.runs()) == (Made.WATCHDOG_SILENT, ())
    desk.deliver(alert("Watchdog"))
    desk.later()
    assert [r.state for r in desk.runs()] == [RunState.DONE]
    desk.clock.advance(700.0)
    desk.deliver(alert("PDTtftHigh"))
    desk.step()
    assert (desk.made("PDTtftHigh"), len(desk.runs())) == (Made.WATCHDOG_SILENT, 1)
    said = [e.body["say"] for e in desk.journal.events("") if "watchdog" in e.body]
    assert len(said) == 1
    assert "nothing starts by itself" in said[0]
    desk.deliver(alert("Watchdog", cluster="another"))
    desk.later()
    assert len(desk.runs()) == 1, "the watchdog of another cluster says nothing of this one"
    desk.journal.close()


def test_a_person_may_still_approve_while_the_watchdog_is_silent(tmp_path: Path) -> None:
    desk = Desk(tmp_path, modes={"add-prefill": Mode.APPROVE}, watchdog_s=60.0)
    desk.deliver(alert())
    desk.later(100.0)
    desk.intake.approve(desk.runs()[0].id, BOB)
    desk.step()
    assert [r.state for r in desk.runs()] == [RunState.DONE]
    desk.journal.close()


def test_other_clusters_and_unknown_alerts_are_noted_and_left(desk: Desk) -> None:
    desk.deliver(alert(cluster="another"), alert("SomethingElse"))
    desk.step()
    assert (desk.made(), desk.made("SomethingElse")) == (Made.OTHER_CLUSTER, Made.NO_RUNBOOK)
    assert desk.runs() == ()


def test_an_interrupted_run_is_gone_on_with(desk: Desk) -> None:
    class Killed(BaseException):
        """The process is gone."""

    def dies(point: str) -> None:
        if point == "after-effect":
            raise Killed

    desk.reached = dies
    desk.deliver(alert())
    with pytest.raises(Killed):
        desk.step()
    desk.reached = lambda _: None
    desk.again()
    desk.step()
    assert [r.state for r in desk.runs()] == [RunState.DONE]
    assert len(desk.world.effects) == 1


def test_a_process_that_ends_while_it_opens_a_run_opens_one(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        """The process is gone."""

    def dies(*_: object) -> None:
        raise Killed

    desk.deliver(alert())
    with monkeypatch.context() as patched:
        patched.setattr("pdops.respond.planner.approval.approve", dies)
        with pytest.raises(Killed):
            desk.step()
    desk.again()
    desk.later()
    assert (desk.made(), [r.state for r in desk.runs()]) == (Made.JOINED, [RunState.PLANNED])


def test_a_held_run_waits_for_a_person_who_resumes_it(desk: Desk) -> None:
    desk.deliver(alert())
    desk.planner.step()
    desk.scene.verdict, desk.scene.found = Verdict.UNKNOWN, ()
    desk.runner.step()
    (run,) = desk.runs()
    desk.scene.verdict, desk.scene.found = Verdict.OVERLOAD, (hypothesis(),)
    desk.later(60.0)
    assert desk.journal.run(run.id).state is RunState.HELD
    desk.runner.resume(desk.intake.resumable(run.id, BOB).id)
    desk.step()
    assert desk.journal.run(run.id).state is RunState.DONE
    with pytest.raises(RefusedError, match="not held"):
        desk.intake.resumable(run.id, BOB)


def _held_while_acting(desk: Desk) -> str:
    """A run whose effect was done and whose verification cannot be answered."""
    desk.reached = lambda point: desk.world.move("worker/prefill-2/serving", None) if point == "after-applied" else None
    desk.deliver(alert())
    desk.step()
    desk.reached = lambda _: None
    (run,) = desk.runs()
    assert (run.state, run.before_hold) == (RunState.HELD, RunState.VERIFYING)
    return run.id


def test_a_held_run_whose_abort_was_answered_is_taken_back_by_the_next_process(desk: Desk) -> None:
    run = _held_while_acting(desk)
    desk.intake.abort(run, BOB)
    desk.again()
    desk.later()
    assert desk.journal.run(run).state is RunState.ROLLED_BACK


def test_a_held_run_that_was_let_go_on_goes_on_in_the_next_process_and_once(desk: Desk) -> None:
    run = _held_while_acting(desk)
    desk.intake.resumable(run, BOB)
    desk.again()
    desk.later()
    resumed = [e for e in desk.journal.events(run) if e.body.get("why") == "resumed"]
    assert (len(resumed), desk.journal.run(run).state) == (1, RunState.HELD), (
        "it was asked again, and still not answered"
    )
    desk.again()
    desk.later()
    assert len([e for e in desk.journal.events(run) if e.body.get("why") == "resumed"]) == 1
    desk.world.move("worker/prefill-2/serving", True)
    desk.intake.resumable(run, BOB)
    desk.again()
    desk.later()
    assert desk.journal.run(run).state is RunState.DONE


def test_a_resume_whose_drive_fails_is_tried_again_by_the_same_process(desk: Desk) -> None:
    run = _held_while_acting(desk)
    desk.world.move("worker/prefill-2/serving", True)
    with claimed(desk.journal, run, "somebody"):
        desk.runner.resume(desk.intake.resumable(run, BOB).id)
        desk.runner.step()
    assert run in desk.runner.problems
    desk.runner.step()
    assert desk.journal.run(run).state is RunState.HELD, "not at once"
    desk.later(RETRY_S)
    assert (desk.journal.run(run).state, desk.runner.problems) == (RunState.DONE, {})


def test_a_held_run_for_another_backend_is_said(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _held_while_acting(desk)
    monkeypatch.setattr("tests.respond.kit.World.name", "another")
    desk.runner.step()
    assert desk.runner.problems[run] == "it is held, and for double; this is another"


def test_a_run_that_cannot_go_on_is_tried_less_and_less(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.deliver(alert())
    desk.planner.step()

    def fails(_: object) -> None:
        raise UnreachableError("the API server does not answer", hint="-")

    monkeypatch.setattr("tests.respond.kit.World.observe", fails)
    for _ in range(240):
        desk.clock.advance(RETRY_S)
        desk.runner.step()
    (run,) = desk.runs()
    claims = [e for e in desk.journal.events(run.id) if e.kind == "claimed"]
    assert 10 < len(claims) < 20, "an hour of it"
    assert "does not answer" in desk.runner.problems[run.id]


def test_a_run_for_another_backend_is_said_and_ends_with_its_plan(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.deliver(alert())
    desk.planner.step()
    monkeypatch.setattr("tests.respond.kit.World.name", "another")
    desk.runner.step()
    (run,) = desk.runs()
    assert "this is another" in desk.runner.problems[run.id]
    desk.clock.advance(TTL_S + 1)
    desk.planner.step()
    desk.runner.step()
    assert (desk.journal.run(run.id).state, desk.runner.problems) == (RunState.REFUSED, {})


def test_an_aborted_run_is_taken_back(desk: Desk) -> None:
    ada = Person("ada", Role.OPERATOR)

    def reached(point: str) -> None:
        if point == "after-applied":
            desk.intake.abort(desk.runs()[0].id, ada)

    desk.reached = reached
    desk.deliver(alert())
    desk.step()
    (run,) = desk.runs()
    assert run.state is RunState.ROLLED_BACK
    assert desk.world.world["values"]["pool/prefill/replicas"] == 2


def test_the_milder_runbook_the_diagnosis_proposes_is_chosen(tmp_path: Path) -> None:
    rough = RESTART.model_copy(
        update={"id": "rough", "triggers": ADD.triggers, "parameters": {}, "steps": ADD.steps, "guards": ADD.guards}
    )
    desk = Desk(tmp_path, runbooks=(rough, ADD), modes={})
    desk.deliver(alert())
    desk.step()
    decision = desk.episode().decision
    assert decision is not None
    assert decision.runbook == "add-prefill"
    desk.journal.close()


def test_a_restart_may_not_be_automatic() -> None:
    with pytest.raises(UsageError, match="may not be automatic"):
        with_modes((ADD, RESTART), {"restart-decode": Mode.AUTO})
    with pytest.raises(UsageError, match="no such runbook"):
        with_modes((ADD,), {"nothing": Mode.APPROVE})


def test_a_runbook_without_guards_may_only_advise() -> None:
    bare = ADD.model_copy(update={"id": "bare", "guards": ()})
    with pytest.raises(UsageError, match="may only advise"):
        with_modes((bare,), {"bare": Mode.AUTO})
    assert with_modes((bare,), {})["bare"].mode is Mode.ADVISE


def test_shipped_runbooks_that_are_safe_may_be_automatic() -> None:
    modes = {"scale-out-prefill": Mode.AUTO, "scale-out-decode": Mode.AUTO, "restart-worker": Mode.APPROVE}
    assert set(with_modes((shipped(n) for n in modes), modes)) == set(modes)


def test_an_alert_never_goes_by_data_nobody_asked_the_age_of(tmp_path: Path) -> None:
    text = Path(__file__).with_name("kit.py").read_text().split('parse_runbook("""')[1].split('"""')[0]
    bare = parse_runbook(text.replace("  - {check: data-fresh, with: {least_ratio: 0.8}}\n", ""))
    desk = Desk(tmp_path, runbooks=(bare,), modes={})
    desk.scene.presence |= dict.fromkeys(desk.scene.presence, Presence.STALE)
    desk.deliver(alert())
    desk.step()
    assert (desk.made(), "data-fresh" in desk.why()) == (Made.REFUSED, True)
    desk.journal.close()


def test_what_is_noted_is_told_to_people(desk: Desk) -> None:
    desk.scene.healthy()
    desk.deliver(alert())
    desk.step()
    (said,) = [e.body["say"] for e in desk.journal.events("") if "say" in e.body]
    assert said.startswith("PDPrefillQueueing: add-prefill disagrees")
    assert json.dumps(said)
