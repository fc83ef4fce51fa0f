"""Whole runs on a double of a Kubernetes API server: carried out, taken back, killed at every boundary and resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pdops.actuate.backend import Value
from pdops.actuate.kubernetes import KubernetesBackend
from pdops.model.frame import Probe, ProbeKind
from pdops.runbook.execute import Executor
from pdops.runbook.gates import Outcome
from pdops.runbook.journal import Run
from pdops.runbook.plan import Plan, PlannedStep
from pdops.runbook.states import RunState
from tests.actuate.kubernetes_kit import RULES, Kit
from tests.runbook.engine_kit import RESTART, Bench, plan, step


class Killed(BaseException):
    """A process that ends at once."""


class Runs:
    """A journal beside an API server; every executor has a backend of its own, as every process would.

    Args:
        folder: of the test.
        kit: the API server.
    """

    def __init__(self, folder: Path, kit: Kit) -> None:
        self.kit, self.bench, self.processes = kit, Bench(folder, kit.clock), 0

    def backend(self) -> KubernetesBackend:
        self.processes += 1
        return self.kit.backend(f"process {self.processes}", canary=self._canary)

    def executor(self, reached: Callable[[str], None] = lambda _: None) -> Executor:
        clock = self.kit.clock
        return Executor(
            self.bench.journal, self.backend(), self.bench.judge, clock=clock, sleep=clock.advance, actor="ada", reached=reached
        )  # fmt: skip

    def plan(self, steps: tuple[PlannedStep, ...], runbook: str) -> Plan:
        return plan(steps, runbook, self.backend().observe(), self.kit.clock.now(), backend="kubernetes")

    def drive(self, made: Plan) -> Run:
        executor = self.executor()
        return executor.drive(executor.open(made).id)

    def _canary(self, worker: str) -> tuple[Probe, ...]:
        return (Probe(kind=ProbeKind.CANARY, t_s=self.kit.clock.now(), worker=worker, ok=True),)


def added(role: str, there: int) -> tuple[PlannedStep, ...]:
    """Return the steps of adding a worker."""
    worker, about = f"{role}-{there}", f"pool/{role}/replicas"
    params: dict[str, Value] = {"role": role, "worker": worker, "replicas": there + 1}
    return (
        step("start", "pool.scale-out", about, there, there + 1, params),
        step("canary", "pair.canary", None, None, None, {"worker": worker}),
        step("route", "router.add", f"worker/{worker}/routed", None, True, {"worker": worker}),
    )


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    with Kit(tmp_path, RULES) as kit:
        kit.pools()
        made = Runs(tmp_path, kit)
        yield made
        made.bench.journal.close()


def sizes(kit: Kit) -> list[str]:
    return [n for v, _, r, n in kit.double.calls if v == "update" and r == "statefulsets/scale"]


def test_a_worker_is_added_tried_and_routed(runs: Runs) -> None:
    run = runs.drive(runs.plan(added("prefill", 2), "scale-out-prefill"))
    assert run.state is RunState.DONE, run.why
    assert runs.kit.double.replicas("prefill") == 3
    assert runs.kit.router.cordoned["prefill-2"] is False


def test_a_newcomer_that_fails_its_canary_is_taken_back(runs: Runs) -> None:
    runs.bench.judge.answers["verify canary"] = (Outcome.FAIL, "wrong text")
    run = runs.drive(runs.plan(added("decode", 2), "scale-out-decode"))
    assert run.state is RunState.ROLLED_BACK, run.why
    assert runs.kit.double.replicas("decode") == 2
    assert sizes(runs.kit) == ["decode", "decode"]


def test_a_size_that_somebody_else_set_meanwhile_holds_the_run(runs: Runs) -> None:
    made = runs.plan(added("prefill", 2), "scale-out-prefill")
    runs.kit.meanwhile(
        "update",
        "statefulsets/scale",
        lambda: runs.kit.double.change("statefulsets", "prefill", lambda o: o["spec"].update(replicas=5)),
    )
    assert runs.drive(made).state is RunState.HELD
    executor = runs.executor()
    again = executor.drive(made.id)
    assert again.state is RunState.HELD
    assert "somebody else moved it" in again.why
    assert runs.kit.double.replicas("prefill") == 5


@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", ["scale-out", "restart"])
def test_a_run_killed_at_any_boundary_is_resumed_and_each_effect_happens_once(tmp_path: Path, what: str) -> None:
    """The killed process leaves its lease behind in every trial: its successor has to wait until that is over."""
    for boundary in range(100):
        folder = tmp_path / str(boundary)
        folder.mkdir()
        with Kit(folder, RULES) as kit:
            kit.pools()
            runs = Runs(folder, kit)
            steps = added("prefill", 2) if what == "scale-out" else RESTART
            made, left, hit = runs.plan(steps, what), [boundary], []

            def reached(point: str, left: list[int] = left, hit: list[str] = hit) -> None:
                if left[0] == 0 and not hit:
                    hit.append(point)
                    raise Killed
                left[0] -= 1

            before = kit.double.get("pods", "decode-0")["metadata"]["uid"]
            executor = runs.executor(reached)
            run = executor.open(made)
            if what == "restart":
                run = runs_approved(runs, run)
            try:
                executor.drive(run.id)
            except Killed:
                runs.bench.again()
                dead = {"holderIdentity": "process dead", "leaseDurationSeconds": 30, "leaseTransitions": 3}
                number = kit.double.objects.get(("leases", "pdops-operator"), {"metadata": {"name": "pdops-operator"}})
                kit.double.put("leases", {**number, "spec": {**dead, "renewTime": "2027-01-15T08:00:00.000000Z"}})
                run = runs.executor().drive(run.id)
            end = runs.bench.journal.run(run.id)
            assert end.state is RunState.DONE, (hit, end.why)
            if what == "scale-out":
                assert sizes(kit) == ["prefill"], hit
                assert kit.double.replicas("prefill") == 3
            else:
                assert len([c for c in kit.double.calls if c[0] == "delete"]) == 1, hit
                assert kit.double.get("pods", "decode-0")["metadata"]["uid"] != before
                assert kit.router.cordoned["decode-0"] is False
            runs.bench.journal.close()
            if not hit:
                assert boundary > 10
                return
    pytest.fail("a run has no end of boundaries")


def runs_approved(runs: Runs, run: Run) -> Run:
    """Let somebody else approve where that is needed."""
    if run.state is not RunState.PLANNED:
        return run
    executor = runs.executor()
    executor.actor = "grace"
    return executor.approve(run.id)
