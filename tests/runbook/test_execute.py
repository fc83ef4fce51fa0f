"""What a run does when all goes well, when something fails, when nobody knows, and when somebody says stop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pdops.actuate.backend import Capabilities, State
from pdops.errors import BusyError, FencedError, JournalError, RefusedError
from pdops.runbook import audit
from pdops.runbook.claim import claimed
from pdops.runbook.gates import Ask, Outcome
from pdops.runbook.killswitch import KillSwitch
from pdops.runbook.model import Risk, ScopeOf
from pdops.runbook.plan import Asked, Decision, Plan, PlannedStep, sealed
from pdops.runbook.states import RunState
from pdops.runbook.stepping import Verdict
from tests.runbook.engine_kit import CORDON, PASS, RESTART, SCALE_OUT, Bench, SetJudge, step

FAIL, UNKNOWN = (Outcome.FAIL, "too slow"), (Outcome.UNKNOWN, "no data")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(tmp_path)
    yield found
    assert audit.verify(found.journal).problems == ()
    found.journal.close()


def _did(bench: Bench) -> list[str]:
    return [action for _, action, _, _ in bench.backend.effects]


def _run(bench: Bench, plan: Plan) -> str:
    x = bench.executor()
    return x.drive(x.open(plan).id).state


def test_a_run_does_its_steps_in_order_and_is_done(bench: Bench) -> None:
    assert _run(bench, bench.plan()) == RunState.DONE
    assert _did(bench) == ["pool.scale-out", "router.add"]
    assert bench.journal.locks() == ()


def test_evidence_that_is_kept_is_in_the_journal_before_anything_is_changed(bench: Bench) -> None:
    keep = step("keep", "evidence.keep", None, None, None, {})
    plan = bench.plan((keep, *CORDON))
    assert _run(bench, plan) == RunState.DONE
    events = list(bench.journal.events(plan.id))
    (kept,) = [e for e in events if e.kind == "noted"]
    assert kept.body == {"diagnosis": {"verdict": "fault", "observed": 0.5}}
    assert kept.seq < min(e.seq for e in events if e.kind == "step" and e.body["id"] == "cordon")


def test_the_same_plan_asked_for_seven_times_is_one_run(bench: Bench) -> None:
    plan = bench.plan()
    assert {_run(bench, plan) for _ in range(7)} == {RunState.DONE}
    assert len(bench.journal.runs()) == 1
    assert _did(bench) == ["pool.scale-out", "router.add"]


def test_what_is_so_already_is_not_done_and_not_taken_back(bench: Bench) -> None:
    bench.backend.move("pool/prefill/replicas", 2)
    bench.judge.answers["verify route"] = FAIL
    assert _run(bench, bench.plan()) == RunState.ROLLED_BACK
    assert _did(bench) == ["router.add", "router.remove"]


def test_a_failed_verification_takes_back_in_reverse_order(bench: Bench) -> None:
    bench.judge.answers["verify route"] = FAIL
    assert _run(bench, bench.plan()) == RunState.ROLLED_BACK
    assert _did(bench) == ["pool.scale-out", "router.add", "router.remove", "pool.scale-in"]
    assert bench.backend.world["values"]["pool/prefill/replicas"] == 1


def test_an_action_that_fails_takes_back_what_was_done_before_it(bench: Bench) -> None:
    bench.backend.fails = {"pair.canary"}
    assert _run(bench, bench.plan()) == RunState.ROLLED_BACK
    assert _did(bench) == ["pool.scale-out", "pool.scale-in"]


def test_a_deployment_that_another_command_changes_holds_and_is_gone_on_with(bench: Bench) -> None:
    def busy(subject: str) -> None:
        if subject == "worker/prefill-1/routed":
            raise BusyError("cannot change it now", where="here", why="another command is at it", hint="wait for it")

    bench.backend.on_effect = busy
    x = bench.executor()
    run = x.drive(x.open(bench.plan()).id)
    assert (run.state, "another command is at it" in run.why) == (RunState.HELD, True)
    assert _did(bench) == ["pool.scale-out"]
    bench.backend.on_effect = lambda _: None
    assert x.drive(run.id).state is RunState.DONE
    assert _did(bench) == ["pool.scale-out", "router.add"]


def test_a_symptom_that_stays_takes_everything_back(bench: Bench) -> None:
    bench.judge.answers["success"] = FAIL
    assert _run(bench, bench.plan()) == RunState.ROLLED_BACK
    assert _did(bench)[-1] == "pool.scale-in"


@pytest.mark.parametrize("question", ["admit", "guard start", "verify start", "skip start", "success"])
def test_unknown_holds_and_neither_passes_nor_takes_back(bench: Bench, question: str) -> None:
    bench.judge.answers[question] = UNKNOWN
    plan = bench.plan()
    if question.startswith("skip"):
        plan = sealed(replace(plan, steps=(replace(plan.steps[0], skip_when=(Ask(check="x"),)), *plan.steps[1:])))
    x = bench.executor()
    run = x.drive(x.open(plan).id)
    assert run.state is RunState.HELD
    assert "no data" in run.why
    assert "pool.scale-in" not in _did(bench)
    bench.judge.answers = {"skip": FAIL}
    bench.again()
    assert bench.executor().drive(run.id).state is RunState.DONE
    assert _did(bench) == ["pool.scale-out", "router.add"]


@pytest.mark.parametrize(("gone_after_s", "done"), [(5.0, False), (30.0, True)])
def test_a_step_has_its_time_to_become_unneeded(bench: Bench, gone_after_s: float, done: bool) -> None:
    begin = bench.clock.monotonic()

    class Settling(SetJudge):
        def skip(self, plan: Plan, step: PlannedStep, state: State) -> Verdict:
            return PASS if bench.clock.monotonic() - begin >= gone_after_s else (Outcome.FAIL, "it is still there")

    bench.judge = Settling()
    first = replace(bench.plan().steps[0], skip_when=(Ask(check="x"),), settle_s=10.0)
    plan = sealed(replace(bench.plan(), steps=(first,)))
    assert _run(bench, plan) is RunState.DONE
    assert (_did(bench) == ["pool.scale-out"]) is done


def test_a_value_that_cannot_be_read_holds(bench: Bench) -> None:
    plan = bench.plan()
    x = bench.executor(
        reached=lambda point: bench.backend.blind.add("pool/prefill/replicas") if point == "started" else None
    )
    run = x.drive(x.open(plan).id)
    assert run.state is RunState.HELD
    assert "is not known: it is blind" in run.why
    assert _did(bench) == []


def test_what_somebody_else_moved_holds(bench: Bench) -> None:
    plan = bench.plan()
    x = bench.executor(reached=lambda p: bench.backend.move("pool/prefill/replicas", 5) if p == "started" else None)
    run = x.drive(x.open(plan).id)
    assert run.state is RunState.HELD
    assert "somebody else moved it" in run.why
    assert _did(bench) == []


def test_a_guard_that_fails_before_the_first_effect_refuses(bench: Bench) -> None:
    bench.judge.answers["admit"] = (Outcome.FAIL, "the diagnosis names another cause")
    x = bench.executor()
    run = x.drive(x.open(bench.plan()).id)
    assert (run.state, run.why) == (RunState.REFUSED, "the diagnosis names another cause")


def test_a_plan_is_refused_when_facts_have_changed(bench: Bench) -> None:
    plan = bench.plan()
    bench.backend.move("pool/prefill/replicas", 3)
    x = bench.executor()
    run = x.drive(x.open(plan).id)
    assert run.state is RunState.REFUSED
    assert "pool/prefill/replicas was 1, is 3" in run.why


def test_a_plan_is_refused_when_it_is_too_old(bench: Bench) -> None:
    plan = bench.plan()
    bench.clock.advance(601)
    assert _run(bench, plan) == RunState.REFUSED


def test_a_plan_that_was_edited_is_refused(bench: Bench) -> None:
    with pytest.raises(RefusedError, match="changed after it was made"):
        bench.executor().open(replace(bench.plan(), budget_per_hour=9))


@pytest.mark.parametrize("decision", [Decision.HELD, Decision.REFUSED])
def test_a_plan_that_is_not_ready_opens_no_run(bench: Bench, decision: Decision) -> None:
    with pytest.raises(RefusedError, match=f"the plan is {decision}"):
        bench.executor().open(bench.plan(decision=decision))
    assert bench.journal.runs() == ()


def test_an_action_the_backend_does_not_offer_refuses_before_anything_happens(bench: Bench) -> None:
    bench.backend.capabilities = lambda: Capabilities(
        frozenset({"pool.scale-out", "pair.canary"}), {"router.add": "it cannot add again"}
    )
    x = bench.executor()
    run = x.drive(x.open(bench.plan()).id)
    assert run.state is RunState.REFUSED
    assert "router.add is not offered: it cannot add again" in run.why
    assert _did(bench) == []


def test_disruptive_runs_wait_for_somebody_else(bench: Bench) -> None:
    plan = bench.plan(RESTART, "restart-worker", risk=Risk.DISRUPTIVE, touches=("worker/decode-0",))
    ada, bob = bench.executor("ada"), bench.executor("bob")
    run = ada.open(plan)
    with pytest.raises(RefusedError, match="waits for approval"):
        ada.drive(run.id)
    with pytest.raises(RefusedError, match="approved by somebody else"):
        ada.approve(run.id)
    bob.approve(run.id)
    assert ada.drive(run.id).state is RunState.DONE
    assert _did(bench) == ["worker.cordon", "worker.restart", "worker.uncordon"]


def test_what_an_alert_asks_for_waits_for_a_person_even_when_safe(bench: Bench) -> None:
    run = bench.executor("alertmanager").open(bench.plan(asked=Asked.ALERT))
    assert run.state is RunState.PLANNED


def test_approval_ends_with_the_plan(bench: Bench) -> None:
    run = bench.executor().open(bench.plan(risk=Risk.DISRUPTIVE))
    bench.clock.advance(601)
    with pytest.raises(RefusedError, match="too old"):
        bench.executor("bob").approve(run.id)


def test_what_nothing_takes_back_ends_as_failed_and_is_named(bench: Bench) -> None:
    plan = bench.plan(RESTART, "restart-worker", touches=("worker/decode-0",))
    bench.judge.answers["verify restart"] = FAIL
    x = bench.executor()
    run = x.drive(x.open(plan).id)
    assert run.state is RunState.FAILED
    assert run.why == "restart: too slow; not taken back: restart: nothing takes it back"
    # The worker that was cordoned for it stays so: nobody knows whether it can serve.
    assert _did(bench) == ["worker.cordon", "worker.restart"]


def test_a_step_that_changed_nothing_stands_in_no_way_of_taking_back(bench: Bench) -> None:
    bench.backend.fails = {"worker.restart"}
    plan = bench.plan(RESTART, "restart-worker", touches=("worker/decode-0",))
    assert _run(bench, plan) == RunState.ROLLED_BACK
    assert _did(bench) == ["worker.cordon", "worker.uncordon"]


def test_taking_back_that_fails_is_not_tried_again(bench: Bench) -> None:
    bench.judge.answers["verify route"] = FAIL
    bench.backend.fails = {"router.remove"}
    x = bench.executor()
    run = x.drive(x.open(bench.plan()).id)
    assert run.state is RunState.FAILED
    assert x.drive(run.id).state is RunState.FAILED
    assert _did(bench) == ["pool.scale-out", "router.add"]


def test_a_freeze_stops_before_the_next_effect_and_thawing_goes_on(bench: Bench) -> None:
    switch = KillSwitch(bench.journal)
    x = bench.executor(reached=lambda point: switch.on("eve", "no more") if point == "after-effect" else None)
    run = x.drive(x.open(bench.plan()).id)
    assert (run.state, run.why) == (RunState.HELD, "frozen by eve: no more")
    assert _did(bench) == ["pool.scale-out"]
    assert bench.executor().drive(run.id).state is RunState.HELD
    switch.off("eve")
    assert bench.executor().drive(run.id).state is RunState.DONE
    assert _did(bench) == ["pool.scale-out", "router.add"]


def test_a_freeze_stops_taking_back_too(bench: Bench) -> None:
    switch = KillSwitch(bench.journal)
    bench.judge.answers["verify route"] = FAIL
    x = bench.executor(
        reached=lambda point: switch.on("eve", "") if point == "verifying" and len(_did(bench)) == 2 else None
    )
    run = x.drive(x.open(bench.plan()).id)
    assert (run.state, run.before_hold) == (RunState.HELD, RunState.ROLLING_BACK)
    switch.off("eve")
    assert bench.executor().drive(run.id).state is RunState.ROLLED_BACK


@pytest.mark.parametrize("how", ["file", "link", "untold", "environment"])
def test_the_file_and_the_environment_freeze_without_the_journal(
    bench: Bench, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "file":
        KillSwitch(bench.journal).file.touch()
    elif how == "link":
        KillSwitch(bench.journal).file.symlink_to("nowhere")
    elif how == "untold":

        def fails(_: Path) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("pdops.runbook.killswitch.Path.lstat", fails)
    else:
        monkeypatch.setenv("PDOPS_FREEZE", "1")
    x = bench.executor()
    assert x.drive(x.open(bench.plan()).id).state is RunState.HELD
    assert _did(bench) == []


def test_a_run_that_cannot_be_claimed_is_not_carried_out(bench: Bench) -> None:
    x = bench.executor()
    run = x.open(bench.plan())
    bench.journal.path.with_name("claims").write_text("")
    with pytest.raises(JournalError, match="a run cannot be claimed"):
        x.drive(run.id)
    assert _did(bench) == []


def test_a_freeze_of_another_cluster_stops_nothing(bench: Bench) -> None:
    KillSwitch(bench.journal).on("eve", "", "d")
    assert _run(bench, bench.plan()) == RunState.DONE


def test_two_topology_runs_never_go_side_by_side(bench: Bench) -> None:
    bench.judge.answers["verify start"] = UNKNOWN
    assert _run(bench, bench.plan()) == RunState.HELD
    bench.judge.answers.clear()
    other = bench.plan(RESTART, "restart-worker", touches=("worker/decode-0",))
    x = bench.executor()
    run = x.drive(x.open(other).id)
    assert run.state is RunState.HELD
    assert "has topology" in run.why
    assert _did(bench) == ["pool.scale-out"]


def test_a_run_on_another_pool_goes_beside_one_that_is_held(bench: Bench) -> None:
    bench.judge.answers["verify cordon"] = UNKNOWN
    held = bench.plan(CORDON, "a", touches=("worker/decode-0",))
    assert _run(bench, held) == RunState.HELD
    bench.judge.answers.clear()
    pool = bench.plan(CORDON, "b", touches=("pool/decode",))
    x = bench.executor()
    blocked = x.drive(x.open(pool).id)
    assert "has worker/decode-0" in blocked.why
    everything = bench.plan(CORDON, "d", scope=ScopeOf.CLUSTER)
    assert "has worker/decode-0" in x.drive(x.open(everything).id).why
    assert _run(bench, bench.plan(CORDON, "c", touches=("pool/prefill",))) == RunState.DONE


def test_cool_down_and_budget_last_over_restarts(bench: Bench) -> None:
    def again(runbook: str = "scale-out-prefill", **more: object) -> tuple[str, str]:
        bench.again()
        bench.backend.move("pool/prefill/replicas", 1)
        bench.backend.move("worker/prefill-1/routed", False)
        x = bench.executor()
        run = x.drive(x.open(bench.plan(runbook=runbook, **more)).id)
        return run.state, run.why

    assert again()[0] == RunState.DONE
    bench.clock.advance(50)
    state, why = again()
    assert (state, "cool-down" in why) == (RunState.HELD, True)
    bench.clock.advance(60)
    assert again()[0] == RunState.DONE
    bench.clock.advance(200)
    state, why = again()
    assert (state, "its budget is 2" in why) == (RunState.HELD, True)
    assert again("scale-out-other")[0] == RunState.DONE
    bench.clock.advance(200)
    state, why = again("scale-out-third")
    assert (state, "the budget is 3" in why) == (RunState.HELD, True)
    bench.clock.advance(3600)
    assert again()[0] == RunState.DONE


def test_an_alert_waits_for_the_cool_down_of_every_run_before_it(bench: Bench) -> None:
    assert _run(bench, bench.plan()) == RunState.DONE
    bench.backend.move("pool/prefill/replicas", 1)
    plan = bench.plan(CORDON, "other", touches=("pool/prefill",), asked=Asked.ALERT)
    run = bench.executor("alertmanager").open(plan)
    bench.executor("bob").approve(run.id)
    assert "cool-down" in bench.executor("bob").drive(run.id).why
    assert _run(bench, bench.plan(CORDON, "by-hand", touches=("pool/prefill",))) == RunState.DONE


def test_a_wall_clock_set_back_does_not_shorten_a_cool_down(bench: Bench) -> None:
    assert _run(bench, bench.plan()) == RunState.DONE
    bench.clock.step_wall(-5000)
    bench.backend.move("pool/prefill/replicas", 1)
    bench.backend.move("worker/prefill-1/routed", False)
    x = bench.executor()
    assert "cool-down" in x.drive(x.open(bench.plan()).id).why


def test_two_runs_that_went_wrong_freeze_the_cluster(bench: Bench) -> None:
    bench.judge.answers["verify"] = FAIL
    for name in ("a", "b"):
        assert _run(bench, bench.plan(CORDON, name, touches=("worker/decode-0",))) == RunState.ROLLED_BACK
    assert bench.journal.frozen("c") == "frozen by pdops: 2 runs went wrong within an hour"


def test_aborting_before_anything_happened_only_ends_it(bench: Bench) -> None:
    run = bench.executor().open(bench.plan(risk=Risk.DISRUPTIVE))
    assert bench.executor().abort(run.id).state is RunState.ABORTED
    with pytest.raises(JournalError, match="has ended"):
        bench.executor().abort(run.id)


def test_aborting_a_held_run_takes_it_back(bench: Bench) -> None:
    bench.judge.answers["verify route"] = UNKNOWN
    x = bench.executor()
    run = x.drive(x.open(bench.plan()).id)
    assert run.state is RunState.HELD
    assert x.abort(run.id).state is RunState.ROLLED_BACK
    assert _did(bench) == ["pool.scale-out", "router.add", "router.remove", "pool.scale-in"]


def test_aborting_one_that_runs_elsewhere_takes_it_back_at_the_next_safe_point(bench: Bench) -> None:
    other = bench.executor("bob")
    plan = bench.plan()

    def stop(point: str) -> None:
        if point == "after-applied" and not bench.journal.run(plan.id).abort:
            assert not other.abort(plan.id).ended

    x = bench.executor(reached=stop)
    run = x.drive(x.open(plan).id)
    assert (run.state, run.why) == (RunState.ROLLED_BACK, "it was aborted")
    assert _did(bench) == ["pool.scale-out", "pool.scale-in"]


def test_taking_back_that_is_held_can_be_given_up(bench: Bench) -> None:
    bench.judge.answers["verify route"] = FAIL
    switch = KillSwitch(bench.journal)
    x = bench.executor(reached=lambda point: switch.on("eve", "") if point == "undone" else None)
    run = x.drive(x.open(bench.plan()).id)
    assert (run.state, run.before_hold) == (RunState.HELD, RunState.ROLLING_BACK)
    run = x.abort(run.id)
    assert (run.state, run.why) == (RunState.FAILED, "taking it back was given up by ada")
    assert bench.backend.world["values"]["pool/prefill/replicas"] == 2


def test_a_process_that_lost_the_run_changes_nothing_any_more(bench: Bench) -> None:
    plan = bench.plan()

    def taken(point: str) -> None:
        if point == "before-intent":
            with bench.journal.transaction() as tx:
                tx.append("claimed", plan.id, actor="bob", body={"fence": tx.next_fence(), "owner": "elsewhere"})

    x = bench.executor(reached=taken)
    with pytest.raises(FencedError, match="taken the run over"):
        x.drive(x.open(plan).id)
    assert _did(bench) == []


def test_only_one_process_carries_a_run_out(bench: Bench) -> None:
    x = bench.executor()
    run = x.open(bench.plan())
    with claimed(bench.journal, run.id, "bob"), pytest.raises(RefusedError, match="being carried out"):
        x.drive(run.id)


def _optional(bench: Bench) -> Plan:
    start, canary, route = SCALE_OUT
    return bench.plan((start, replace(canary, if_fails="degrade"), route))


def test_a_step_that_may_fail_is_gone_on_without_and_the_end_says_so(bench: Bench) -> None:
    bench.backend.fails = {"pair.canary"}
    plan = _optional(bench)
    assert _run(bench, plan) == RunState.DONE
    assert _did(bench) == ["pool.scale-out", "router.add"]
    assert bench.journal.run(plan.id).why == "without canary: pair.canary does not work"


def test_a_step_that_was_gone_on_without_is_not_tried_again_by_a_resumed_run(bench: Bench) -> None:
    bench.judge.answers |= {"verify canary": FAIL, "verify route": UNKNOWN}
    plan = _optional(bench)
    assert _run(bench, plan) == RunState.HELD
    bench.judge.answers = {}
    assert bench.executor().drive(plan.id).state == RunState.DONE
    assert bench.journal.run(plan.id).why == "without canary: canary: too slow"
    intents = [e for e in bench.journal.events(plan.id) if e.kind == "step" and e.body["to"] == "intent"]
    assert [e.body["id"] for e in intents].count("canary") == 1


@pytest.mark.parametrize(
    ("answer", "state", "least_s"), [(FAIL, RunState.ROLLED_BACK, 0.0), (UNKNOWN, RunState.HELD, 20.0)]
)
def test_a_canary_that_failed_is_not_waited_for_and_one_that_is_not_told_is(
    bench: Bench, answer: tuple[Outcome, str], state: RunState, least_s: float
) -> None:
    bench.judge.answers["verify canary"] = answer
    began_s = bench.clock.monotonic()
    assert _run(bench, bench.plan()) == state
    waited_s = bench.clock.monotonic() - began_s
    assert (waited_s == 0.0) if not least_s else (waited_s >= least_s)


def test_what_a_guard_forbids_is_not_gone_on_without(bench: Bench) -> None:
    bench.judge.answers["guard canary"] = FAIL
    assert _run(bench, _optional(bench)) == RunState.ROLLED_BACK


def test_an_abort_in_a_step_that_may_fail_is_an_abort(bench: Bench) -> None:
    plan = _optional(bench)
    bench.judge.answers["verify canary"] = FAIL

    def reached(point: str) -> None:
        records = bench.journal.steps(plan.id)
        if point == "verifying" and len(records) == 2 and not bench.journal.run(plan.id).abort:
            with bench.journal.transaction() as tx:
                tx.append("abort", plan.id, actor="eve")

    x = bench.executor(reached=reached)
    assert x.drive(x.open(plan).id).state == RunState.ROLLED_BACK
