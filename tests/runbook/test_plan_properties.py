"""What holds of every plan, whatever the cluster, the state, the diagnosis and the parameters."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdops.actuate.backend import Capabilities, Seen, State, Value
from pdops.model.cluster import Cluster, Role, Slo, Worker
from pdops.model.report import Hypothesis, Layer, Report, Scope, Verdict
from pdops.model.series import Window
from pdops.model.view import Health, Presence, View
from pdops.runbook.actions import actions
from pdops.runbook.encode import plan_from_json, plan_to_json
from pdops.runbook.gates import Outcome
from pdops.runbook.load import shipped, shipped_ids
from pdops.runbook.make import BackendState, make_plan
from pdops.runbook.plan import Asked, Decision, Plan, plan_hash
from pdops.runbook.world import World
from tests.runbook.known import known

AT_S = 1000.0


@st.composite
def views(draw: st.DrawFn) -> View:
    """A few workers of each role, some of them away; no signals."""
    counts = draw(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 1), st.integers(0, 1)))
    roles = (Role.PREFILL, Role.DECODE, Role.ROUTER, Role.KVSTORE)
    workers = [
        Worker(id=f"{r}-{n}", role=r, pool=r.value)
        for r, count in zip(roles, counts, strict=True)
        for n in range(count)
    ]
    health = {w.id: Health(Presence.UP) for w in workers}
    for index, presence in draw(st.dictionaries(st.integers(0, 9), st.sampled_from(Presence), max_size=1)).items():
        if index < len(workers):
            health[workers[index].id] = Health(presence)
    cluster = Cluster(name="any", workers=tuple(workers), slo=Slo(ttft_s=1.0, itl_s=0.05))
    return View(cluster=cluster, at_s=AT_S, start_s=0.0, now=Window(700.0, AT_S), base=None, series={}, health=health)


@st.composite
def states(draw: st.DrawFn, view: View) -> State:
    """All known and well, but for a few values that are anything or not known."""
    values = dict(known(view).state.values)
    changed = st.dictionaries(
        st.sampled_from(sorted(values)),
        st.sampled_from([None, True, False, 0, 1, 7, "", "hpa", "frozen", "stopped", "running"]),
        max_size=4,
    )
    for subject, value in draw(changed).items():
        if not subject.endswith("/role"):
            values[subject] = Seen(value, "double")
    return State(at_s=AT_S, values=values)


@st.composite
def reports(draw: st.DrawFn, cluster: Cluster, causes: tuple[str, ...]) -> Report:
    """A diagnosis that may or may not name what the runbook is for."""
    verdict = draw(st.sampled_from([Verdict.FAULT, Verdict.FAULT, Verdict.OVERLOAD, Verdict.UNKNOWN, Verdict.HEALTHY]))
    ids = [w.id for w in cluster.workers]
    pairs = [str(p) for p in cluster.pairs()]
    scopes = [Scope("worker", w) for w in ids] + [Scope("pair", p) for p in pairs]
    hypothesis = Hypothesis(
        fault=1,
        cause=draw(st.sampled_from([causes[0], causes[0], "output-inflation"])),
        check="any/thing",
        layer=Layer.PREFILL,
        confidence=draw(st.sampled_from([0.9, 0.65, 0.4])),
        scopes=tuple(draw(st.lists(st.sampled_from(scopes), max_size=2, unique=True))) if scopes else (),
        for_=(),
    )
    found = () if verdict is Verdict.HEALTHY else (hypothesis,)
    return Report(cluster="any", at=None, at_s=AT_S, verdict=verdict, hypotheses=found)


@dataclasses.dataclass(frozen=True)
class Given:
    """Everything a plan is made from."""

    runbook: str
    view: View
    report: Report
    backend: BackendState
    values: Mapping[str, Value]
    asked: Asked

    def plan(self) -> Plan:
        """Make the plan."""
        return make_plan(
            shipped(self.runbook), self.view, self.report, self.backend, self.values, made_at_s=AT_S, asked=self.asked
        )


@st.composite
def givens(draw: st.DrawFn) -> Given:
    """Any of the shipped runbooks on any cluster."""
    runbook = shipped(draw(st.sampled_from(shipped_ids())))
    view = draw(views())
    values: dict[str, Value] = {}
    for name, parameter in runbook.parameters.items():
        meant = [w.id for w in view.cluster.of_role(*parameter.roles)]
        if parameter.type == "worker" and meant and draw(st.integers(0, 3)):
            values[name] = draw(st.sampled_from(meant))
        elif parameter.type == "integer" and draw(st.booleans()):
            assert parameter.min is not None
            assert parameter.max is not None
            values[name] = draw(st.integers(int(parameter.min), int(parameter.max)))
    missing = draw(st.sets(st.sampled_from(sorted(actions())), max_size=1))
    offered = Capabilities(frozenset(actions()) - missing, dict.fromkeys(missing, "not here"))
    backend = BackendState("double", draw(states(view)), offered)
    report = draw(reports(view.cluster, runbook.triggers.diagnosis.causes or ("ratio-wrong",)))
    return Given(runbook.id, view, report, backend, values, draw(st.sampled_from(Asked)))


many = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@many
@given(givens())
def test_a_ready_plan_never_goes_below_the_minimum(given_: Given) -> None:
    """Played step by step, so many workers of each role still take requests while another is out."""
    plan = given_.plan()
    runbook = shipped(given_.runbook)
    if plan.decision is not Decision.READY or runbook.min_ready == 0:
        return
    world = World(given_.backend.state)
    serving = {r: {w for w in world.workers(r) if world.takes_requests(w)} for r in ("prefill", "decode")}
    start = {r: len(s) for r, s in serving.items()}
    for step in plan.steps:
        worker = str(step.params.get("worker") or "")
        role = world.role(worker)
        if role not in serving or step.already:
            continue
        if actions()[step.action].takes_out and worker in serving[role]:
            left = len(serving[role] - {worker})
            assert left >= runbook.min_ready, step
            assert left >= math.ceil(start[role] / 2), step
            if step.action in ("worker.cordon", "worker.stop", "pool.scale-in", "router.remove"):
                serving[role].discard(worker)
        elif step.action in ("worker.uncordon", "router.add"):
            serving[role].add(worker)


@many
@given(givens())
def test_targets_are_absolute_and_compared(given_: Given) -> None:
    """Each step of a ready plan sets a known value, from a known value, and parameters hold no reference or difference."""
    plan = given_.plan()
    for step in plan.steps:
        assert all(isinstance(v, str | int | float | bool | None) for v in step.params.values())
        if plan.decision is Decision.READY and step.subject is not None:
            assert step.target is not None
            assert step.before is not None or not actions()[step.action].compares
            assert not step.already or step.before == step.target


@many
@given(givens())
def test_unknown_never_passes(given_: Given) -> None:
    """A plan with an open question is not ready, one with a failed guard is refused, and each has a reason."""
    plan = given_.plan()
    outcomes = {g.outcome for g in plan.guards}
    if Outcome.FAIL in outcomes:
        assert plan.decision is Decision.REFUSED
    elif Outcome.UNKNOWN in outcomes:
        assert plan.decision is not Decision.READY
    assert bool(plan.reasons) == (plan.decision is not Decision.READY)


@many
@given(givens())
def test_an_alert_never_acts_against_the_diagnosis(given_: Given) -> None:
    """Healthy, unknown or another cause: not ready, whoever may ask by hand."""
    given_ = dataclasses.replace(given_, asked=Asked.ALERT)
    plan = given_.plan()
    trigger = shipped(given_.runbook).triggers.diagnosis
    named = [
        h for h in given_.report.hypotheses if h.cause in trigger.causes and h.confidence >= trigger.min_confidence
    ]
    if not named or given_.report.verdict in (Verdict.HEALTHY, Verdict.UNKNOWN):
        assert plan.decision is not Decision.READY


@many
@given(givens())
def test_same_input_same_plan(given_: Given) -> None:
    """The hash covers everything; a plan that is written and read is the same plan."""
    plan = given_.plan()
    assert given_.plan() == plan
    assert plan_hash(plan) == plan.plan_hash
    text = plan_to_json(plan)
    assert plan_from_json(text, path="plan.json") == plan
    later = dataclasses.replace(plan, expires_at_s=plan.expires_at_s + 1)
    assert plan_hash(later) != plan.plan_hash
    assert json.loads(text)["id"] == plan.id


@pytest.mark.parametrize("runbook_id", shipped_ids())
def test_an_empty_cluster_is_never_everybody(runbook_id: str) -> None:
    """With nobody there nothing is planned."""
    cluster = Cluster(name="none", workers=())
    view = View(cluster=cluster, at_s=AT_S, start_s=0.0, now=Window(700.0, AT_S), base=None, series={})
    report = Report(cluster="none", at=None, at_s=AT_S, verdict=Verdict.UNKNOWN)
    backend = BackendState("double", State(at_s=AT_S), Capabilities(frozenset(actions())))
    plan = make_plan(shipped(runbook_id), view, report, backend, {}, made_at_s=AT_S)
    assert plan.decision is not Decision.READY
