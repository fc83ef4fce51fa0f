"""Questions have three answers, and what is not known never passes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from pdops.actuate.backend import Seen, State, Value
from pdops.diagnose.encode import to_json
from pdops.diagnose.engine import diagnose
from pdops.model.report import DoNot, Hypothesis, Layer, Report, Scope, Symptom, Verdict
from pdops.model.view import Health, Presence
from pdops.runbook.gates import Ask, Facts, Outcome, again, ask, together
from pdops.runbook.load import parse_runbook, shipped
from pdops.runbook.make import make_plan, without_backend
from pdops.runbook.model import Risk
from pdops.runbook.plan import Asked, Decision
from pdops.runbook.questions import QUESTIONS
from pdops.runbook.signals import Signals
from pdops.sources.case import case_view, parse_case
from tests.runbook.known import known

HEAD = """\
schema: pdops/case/v1
id: q
source: written
basis: reported
cluster:
  slo: {ttft_s: 1.0, itl_s: 0.05}
  workers:
    - {id: prefill-0, role: prefill, pool: prefill, engine: vllm}
    - {id: prefill-1, role: prefill, pool: prefill, engine: vllm}
    - {id: decode-0, role: decode, pool: decode, engine: vllm}
    - {id: decode-1, role: decode, pool: decode, engine: vllm}
at_s: 0
"""
PASS, FAIL, UNKNOWN = Outcome.PASS, Outcome.FAIL, Outcome.UNKNOWN


def facts(
    case: str = "", report: Report | None = None, since_s: float | None = None, head: str = HEAD, **state: Value
) -> Facts:
    """Return facts of a small cluster; `state` are subjects with `__` for `/`."""
    view, _ = case_view(parse_case(head + case))
    values = {s.replace("__", "/"): Seen(v, "double") for s, v in state.items()}
    values |= {f"worker/{w.id}/role": Seen(w.role.value, "double") for w in view.cluster.workers}
    return Facts(view=view, report=report or diagnose(view), state=State(at_s=0.0, values=values), since_s=since_s)


def silent(**state: Value) -> Facts:
    """Return facts of a small cluster of which nobody answers."""
    seen = facts(**state)
    down = {w.id: Health(Presence.DOWN, why="does not answer") for w in seen.view.cluster.workers}
    return replace(seen, view=replace(seen.view, health=down))


def processes(**found: Value) -> dict[str, Value]:
    """Return what a backend says of the processes of all four engines, `running` unless given."""
    names = ("prefill-0", "prefill-1", "decode-0", "decode-1")
    return {f"worker/{n}/process": found.get(n.replace("-", "_"), "running") for n in names}


def hypothesis(cause: str, confidence: float = 0.9, fault: int = 1, **more: object) -> Hypothesis:
    """Return one hypothesis."""
    made: dict[str, object] = {
        "check": "transfer/link-slow", "layer": Layer.TRANSFER, "scopes": (Scope("worker", "decode-1"),), "for_": (),
    } | more  # fmt: skip
    return Hypothesis(fault=fault, cause=cause, confidence=confidence, **made)  # type: ignore[arg-type]


def report(verdict: Verdict, *found: Hypothesis, symptoms: tuple[Symptom, ...] = ()) -> Report:
    """Return a diagnosis."""
    return Report(cluster="q", at=None, at_s=0.0, verdict=verdict, hypotheses=found, symptoms=symptoms)


def outcome(check: str, seen: Facts, **params: Value) -> Outcome:
    """Return what a question comes to."""
    answer = ask(Ask(check=check, params=params), seen)
    assert answer.outcome is PASS or answer.why
    return answer.outcome


CALM = "signals:\n  ttft_seconds.p95: {client: {before: 0.5, now: 0.5}}\n  itl_seconds.p95: {client: {before: 0.02, now: 0.02}}\n"
SLOW = "signals:\n  ttft_seconds.p95: {client: {before: 0.5, now: 5.0}}\n"
CANARY = 'probes: [{{t_s: {t}, kind: canary, pair: "prefill-0>decode-1", ok: {ok}}}]\n'
OLD = "signals:\n  queue_depth: {prefill-0: [[-400, 1], [-300, 1]], prefill-1: [[-400, 1], [-300, 1]], decode-0: [[-300, 1], [0, 1]], decode-1: [[-300, 1], [0, 1]]}\n"
BUSY = "signals:\n  running_requests: {decode-0: [[-300, 4], [-100, 2], [0, 0]]}\n  queue_depth: {decode-0: [[-300, 0], [0, 0]]}\n"
IDLE = "signals:\n  running_requests: {decode-0: [[-300, 4], [-100, 0], [-50, 0], [0, 0]]}\n  queue_depth: {decode-0: [[-300, 0], [-50, 0], [0, 0]]}\n"
KV = "signals:\n  kv_cache_usage: {{decode-0: {{before: {a}, now: {a}}}, decode-1: {{before: {b}, now: {b}}}}}\n"
LOAD = """signals:
  prefill_seconds.rate: {{"pool:prefill": {{before: {rate}, now: {rate}}}}}
  prefill_seconds.mean: {{"pool:prefill": {{before: 0.1, now: 0.1}}}}
  prefix_cache_hits: {{"pool:prefill": [[-900, 0], [-300, 600], [0, 900]]}}
  prefix_cache_queries: {{"pool:prefill": [[-900, 0], [-300, 1200], [0, 1800]]}}
  prompt_tokens: {{"pool:prefill": [[-900, 0], [-300, 60000], [0, 90000]]}}
"""
WAITS = """signals:
  prefill_seconds.rate: {{"pool:prefill": {{before: {before}, now: {now}}}}}
  prefill_seconds.mean: {{"pool:prefill": {{before: 0.1, now: 5.0}}}}
  prefix_cache_hits: {{"pool:prefill": [[-900, 0], [-300, 600], [0, 600]]}}
  prefix_cache_queries: {{"pool:prefill": [[-900, 0], [-300, 1200], [0, 1800]]}}
  prompt_tokens: {{"pool:prefill": [[-900, 0], [-300, 60000], [0, 63000]]}}
  external_cache_hits: {{"pool:prefill": [[-900, 0], [-300, 0], [0, 0]]}}
  external_cache_queries: {{"pool:prefill": [[-900, 0], [-300, 600], [0, 1200]]}}
"""
STORE = "    - {id: store-0, role: kvstore, pool: store, engine: mooncake}\n"

KV_ONCE = "signals:\n  kv_cache_usage: {decode-0: [[-290, 0.1], [-200, 0.1]], decode-1: [[-290, 0.1], [-200, 0.1]]}\n"
HALF_LOAD = """signals:
  prefill_seconds.rate: {prefill-0: {before: 4, now: 4}}
  prefill_seconds.mean: {prefill-0: {before: 0.1, now: 0.1}}
  prefix_cache_hits: {"pool:prefill": [[-900, 0], [-300, 600], [0, 900]]}
  prefix_cache_queries: {"pool:prefill": [[-900, 0], [-300, 1200], [0, 1800]]}
  prompt_tokens: {"pool:prefill": [[-900, 0], [-300, 60000], [0, 90000]]}
"""
QUIET = "signals:\n  prompt_tokens: {{prefill-0: [[-900, 0], [-280, 900], [-200, 900], [{end}, 900]]}}\n"
TWO_POOLS = HEAD.replace(
    "prefill-1, role: prefill, pool: prefill, engine: vllm}",
    "prefill-1, role: prefill, pool: long, engine: vllm}\n    - {id: prefill-2, role: prefill, pool: long, engine: vllm}",
)
ONE_SILENT = "signals:\n  queue_depth: {prefill-0: {before: 4, now: 4}, prefill-1: {before: 1, now: 1}}\n"

TABLE: list[tuple[str, Mapping[str, Value], Facts, Outcome]] = [
    ("data-fresh", {}, facts(), PASS),
    ("data-fresh", {}, facts(OLD), FAIL),
    ("data-fresh", {"least_ratio": 0.5}, facts(OLD), PASS),
    ("pool-ready", {"role": "decode", "least": 1}, facts(worker__decode__x=1), UNKNOWN),
    ("pool-ready", {"role": "decode", "least": 2}, facts(**{"worker/decode-0/serving": True, "worker/decode-1/serving": False}), FAIL),
    ("pool-ready", {"role": "decode", "least": 1}, facts(**{"worker/decode-0/serving": True}), PASS),
    ("serving", {"worker": "decode-0"}, facts(), UNKNOWN),
    ("serving", {"worker": "decode-0"}, facts(**{"worker/decode-0/serving": False}), FAIL),
    ("silent", {"worker": "decode-0"}, facts(), UNKNOWN),
    ("silent", {"worker": "decode-0"}, facts(**{"worker/decode-0/serving": False}), PASS),
    ("no-rollout", {"role": "decode"}, facts(), UNKNOWN),
    ("no-rollout", {"role": "decode"}, facts(pool__decode__rollout=False), PASS),
    ("no-rollout", {"worker": "decode-0"}, facts(pool__decode__rollout=True), FAIL),
    ("no-rollout", {"role": "decode"}, facts("events: [{t_s: -60, kind: rollout, pool: decode}]", pool__decode__rollout=False), FAIL),
    ("own-replicas", {"role": "decode"}, facts(), UNKNOWN),
    ("own-replicas", {"role": "decode"}, facts(pool__decode__owner=""), PASS),
    ("own-replicas", {"role": "decode"}, facts(pool__decode__owner="HorizontalPodAutoscaler decode"), FAIL),
    ("room-for", {"role": "decode"}, facts(), UNKNOWN),
    ("room-for", {"role": "decode"}, facts(pool__decode__free=0), FAIL),
    ("canary-passed", {"worker": "decode-1"}, facts(), UNKNOWN),
    ("canary-passed", {"worker": "decode-1"}, facts(CANARY.format(t=-5, ok="true")), PASS),
    ("canary-passed", {"worker": "decode-1"}, facts(CANARY.format(t=-5, ok="false")), FAIL),
    ("canary-passed", {"worker": "decode-1"}, facts(CANARY.format(t=-5, ok="true"), since_s=-1.0), UNKNOWN),
    ("canary-passed", {"worker": "decode-0"}, facts(CANARY.format(t=-5, ok="true")), UNKNOWN),
    ("router-setting", {"setting": "salt_ratio", "most": 0.5}, facts(), UNKNOWN),
    ("router-setting", {"setting": "salt_ratio", "most": 0.5}, facts(**{"router/salt_ratio": 0.5}), PASS),
    ("router-setting", {"setting": "salt_ratio", "most": 0.5}, facts(**{"router/salt_ratio": 0.6}), FAIL),
    ("slo-met", {"latency": "ttft"}, facts(), UNKNOWN),
    ("slo-met", {"latency": "ttft"}, facts(CALM), PASS),
    ("slo-met", {"latency": "ttft"}, facts(SLOW), FAIL),
    ("symptom-gone", {"symptom": "ttft-high-itl-normal"}, facts(SLOW), FAIL),
    ("symptom-gone", {"symptom": "ttft-high-itl-normal"}, facts("", report(Verdict.HEALTHY)), UNKNOWN),
    ("symptom-gone", {"symptom": "ttft-high-itl-normal"}, facts(CALM, report(Verdict.HEALTHY)), PASS),
    ("symptom-gone", {"symptom": "ttft-high-itl-normal"}, facts(CALM, report(Verdict.UNKNOWN)), UNKNOWN),
    ("healthy", {}, facts("", report(Verdict.UNKNOWN)), UNKNOWN),
    ("healthy", {}, facts("", report(Verdict.OVERLOAD)), FAIL),
    ("cause-gone", {"cause": "a"}, facts("", report(Verdict.UNKNOWN, hypothesis("a", 0.3))), UNKNOWN),
    ("cause-gone", {"cause": "a"}, facts("", report(Verdict.FAULT, hypothesis("a"))), FAIL),
    ("cause-gone", {"cause": "a"}, facts("", report(Verdict.FAULT, hypothesis("b"))), PASS),
    ("errors-below", {"ratio": 0.01}, facts(), UNKNOWN),
    ("empty", {"worker": "decode-0", "lease_s": 30}, facts(BUSY), UNKNOWN),
    ("empty", {"worker": "decode-0", "lease_s": 60}, facts(IDLE), PASS),
    ("empty", {"worker": "decode-0", "lease_s": 250}, facts(IDLE), FAIL),
    ("empty", {"worker": "decode-0", "lease_s": 900}, facts(IDLE), UNKNOWN),
    ("empty", {"worker": "decode-1", "lease_s": 30}, facts(IDLE), UNKNOWN),
    ("peers-can-carry", {"worker": "decode-0"}, facts(), UNKNOWN),
    ("peers-can-carry", {"worker": "decode-0"}, facts(KV.format(a=0.3, b=0.3)), PASS),
    ("peers-can-carry", {"worker": "decode-0"}, facts(KV.format(a=0.6, b=0.5)), FAIL),
    ("peers-can-carry", {"worker": "decode-0"}, facts(KV.format(a=0.3, b=0.3), **{"worker/decode-1/cordoned": True}), FAIL),
    ("kv-headroom", {"role": "decode"}, facts(KV_ONCE), UNKNOWN),
    ("kv-headroom", {"role": "decode"}, facts(KV.format(a=0.3, b=0.8)), FAIL),
    ("kv-headroom", {"role": "decode"}, facts(KV.format(a=0.3, b=0.3)), PASS),
    ("kv-headroom", {"role": "prefill"}, facts(KV.format(a=0.3, b=0.3)), UNKNOWN),
    ("prefill-headroom", {}, facts(), UNKNOWN),
    ("prefill-headroom", {}, facts(LOAD.format(rate=4)), PASS),
    ("prefill-headroom", {}, facts(LOAD.format(rate=12)), FAIL),
    ("prefill-headroom", {}, facts(HALF_LOAD), UNKNOWN),
    ("prefill-headroom", {}, facts(LOAD.format(rate=7), **{"worker/prefill-1/process": "stopped"}), FAIL),
    ("signal", {"signal": "queue_depth", "scope": "prefill", "op": "below", "value": 5}, facts(ONE_SILENT, head=TWO_POOLS), UNKNOWN),
    ("signal", {"signal": "queue_depth", "scope": "prefill", "op": "below", "value": 5}, facts(), UNKNOWN),
    ("signal", {"signal": "prompt_tokens", "scope": "prefill-0", "stat": "rate", "op": "below", "value": 1}, facts(QUIET.format(end=0)), PASS),
    ("signal", {"signal": "prompt_tokens", "scope": "prefill-0", "stat": "rate", "op": "below", "value": 1}, facts(QUIET.format(end=-100)), UNKNOWN),
    ("signal", {"signal": "kv_cache_usage", "scope": "decode-1", "op": "below", "value": 0.5}, facts(KV.format(a=0.1, b=0.3)), PASS),
    ("signal", {"signal": "kv_cache_usage", "scope": "decode", "op": "below", "value": 0.5}, facts(KV.format(a=0.1, b=0.8)), FAIL),
    ("min-ready", {"worker": "decode-0", "role": "decode", "least": 1, "baseline": 2}, facts(), UNKNOWN),
    ("min-ready", {"worker": "decode-0", "role": "decode", "least": 1, "baseline": 2}, facts(**{"worker/decode-1/serving": True}), PASS),
    ("min-ready", {"worker": "decode-0", "role": "decode", "least": 1, "baseline": 2}, facts(**{"worker/decode-1/serving": True, "worker/decode-1/cordoned": True}), FAIL),
    ("min-ready", {"worker": "decode-0", "role": "decode", "least": 1, "baseline": 2}, facts(**{"worker/decode-1/serving": True, "worker/decode-1/routed": None}), UNKNOWN),
    ("min-ready", {"worker": "decode-0", "role": "decode", "least": 1, "baseline": 2}, facts(**{"worker/decode-1/serving": True, "worker/decode-1/cordoned": None}), UNKNOWN),
    ("min-ready", {"worker": "decode-0", "role": "decode", "least": 1, "baseline": 1}, facts(**{"worker/decode-0/serving": False, "worker/decode-1/serving": False}), PASS),
    ("nothing-answers", {}, facts(**processes(decode_1="stopped")), FAIL),
    ("nothing-answers", {}, silent(**processes(decode_1="stopped")), PASS),
    ("nothing-answers", {}, silent(**processes()), FAIL),
    ("nothing-answers", {}, silent(**processes(decode_1=None)), UNKNOWN),
]  # fmt: skip


@pytest.mark.parametrize(
    ("check", "params", "seen", "expected"), TABLE, ids=[f"{t[0]}-{t[3]}-{n}" for n, t in enumerate(TABLE)]
)
def test_answer(check: str, params: Mapping[str, Value], seen: Facts, expected: Outcome) -> None:
    """Each question passes, fails, or says that it is not known and why."""
    assert outcome(check, seen, **params) is expected


def test_every_question_can_be_unknown_or_fail_here() -> None:
    """No question of the list is without a row that does not pass."""
    tried = {check for check, _, _, expected in TABLE if expected is not PASS}
    assert set(QUESTIONS) - tried == {"diagnosis-agrees", "not-advised-against"}


def outage(before: float, now: float, since_s: float) -> Facts:
    """Return facts of prefill that waits for a store which has not answered since then; each wait counts as busy."""
    seen = facts(WAITS.format(before=before, now=now), head=HEAD.replace("at_s: 0", f"{STORE}at_s: 0"))
    down = {"store-0": Health(Presence.DOWN, why="does not answer", since_s=since_s)}
    return replace(seen, view=replace(seen.view, health={**seen.view.health, **down}))


def headroom(seen: Facts) -> tuple[Outcome, str]:
    """Return what the question for headroom comes to, and the reason."""
    answer = ask(Ask(check="prefill-headroom", params={"most_ratio": 0.9}), seen)
    return answer.outcome, answer.observed + answer.why


def test_prefill_that_waits_for_a_store_that_is_away_is_not_busy() -> None:
    """What it computed before counts: 4 prompts/s of 0.1 s on two workers at a hit rate of a half."""
    assert headroom(outage(4, 0.2, since_s=-290.0)) == (PASS, "busy 20% at a hit rate of 50%, without it 40%")
    assert headroom(outage(10, 0.2, since_s=-290.0))[0] is FAIL


def test_prefill_that_was_not_watched_before_the_store_went_away_is_unknown() -> None:
    """Half a minute says too little, and what is busy now may only wait."""
    result, why = headroom(outage(4, 0.2, since_s=-870.0))
    assert result is UNKNOWN
    assert "cannot be told from what it waits" in why


def test_more_prompts_than_before_the_outage_count() -> None:
    """The cost is of before, what comes is the greater of then and now."""
    seen = outage(4, 0.2, since_s=-290.0)
    grown = facts(WAITS.format(before=4, now=0.2).replace("[0, 63000]", "[0, 150000]"), head=HEAD)
    series = {**seen.view.series, ("pool:prefill", "prompt_tokens"): grown.view.series["pool:prefill", "prompt_tokens"]}
    assert headroom(replace(seen, view=replace(seen.view, series=series)))[0] is FAIL


@pytest.mark.parametrize("left_out", ["prompt_tokens", "prefix_cache_hits", "prefill_seconds.mean"])
def test_headroom_is_unknown_without_any_of_what_it_is_made_of(left_out: str) -> None:
    """Nothing of it is taken for zero."""
    lines = LOAD.format(rate=4).splitlines(keepends=True)
    assert headroom(facts("".join(line for line in lines if f" {left_out}:" not in line)))[0] is UNKNOWN


def test_headroom_is_unknown_while_nothing_tells_what_a_store_gave() -> None:
    """Without the store prefill computes that too, and it may be most of what comes."""
    head, load = HEAD.replace("at_s: 0", f"{STORE}at_s: 0"), LOAD.format(rate=4)
    result, why = headroom(facts(load, head=head))
    assert (result, "the hit rate of pool:prefill is not known" in why) == (UNKNOWN, True)
    gave = '  external_cache_{}: {{"pool:prefill": [[-900, 0], [-300, {}], [0, {}]]}}\n'
    unread = gave.format("hits", 0, 0) + gave.format("queries", 0, 0)
    assert headroom(facts(load + unread, head=head)) == (PASS, "busy 20% at a hit rate of 50%, without it 40%")
    read = gave.format("hits", 480, 720) + gave.format("queries", 600, 900)
    assert headroom(facts(load + read, head=head))[0] is FAIL


def test_headroom_is_unknown_while_nothing_tells_what_prefill_had_itself() -> None:
    """A store that gave nothing says nothing of prefixes; a cache that nobody asked gave none."""
    head = HEAD.replace("at_s: 0", f"{STORE}at_s: 0")
    gave = '  external_cache_{}: {{"pool:prefill": [[-900, 0], [-300, 0], [0, 0]]}}\n'
    store = gave.format("hits") + gave.format("queries")
    load = LOAD.format(rate=4).splitlines(keepends=True)
    rest = "".join(line for line in load if " prefix_cache_" not in line) + store
    result, why = headroom(facts(rest, head=head))
    assert (result, "the hit rate of pool:prefill is not known" in why) == (UNKNOWN, True)
    off = rest + store.replace("external_", "prefix_")
    assert "at a hit rate of 0%" in headroom(facts(off, head=head))[1]


AGREES: dict[str, Value] = {"runbook": "r", "causes": "a b", "checks": "", "min_confidence": 0.7}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (report(Verdict.FAULT, hypothesis("a")), PASS),
        (report(Verdict.FAULT, hypothesis("c", runbooks=("r",))), PASS),
        (report(Verdict.FAULT, hypothesis("a", 0.6)), UNKNOWN),
        (report(Verdict.FAULT, hypothesis("c"), hypothesis("a", 0.8)), FAIL),
        (report(Verdict.FAULT, hypothesis("c"), hypothesis("a", 0.8, fault=2)), PASS),
        (report(Verdict.UNKNOWN, hypothesis("a")), UNKNOWN),
        (report(Verdict.HEALTHY), FAIL),
    ],
)
def test_the_diagnosis_agrees_only_as_the_cause(said: Report, expected: Outcome) -> None:
    """An also-ran is no agreement; a second fault is."""
    assert outcome("diagnosis-agrees", facts("", said), **AGREES) is expected


def test_a_warning_of_the_diagnosis_is_heard() -> None:
    """`do_not` of the leading hypothesis refuses."""
    warned = hypothesis("a", do_not=(DoNot(action="r", why="it makes it worse"),))
    answer = ask(Ask(check="not-advised-against", params={"runbook": "r"}), facts("", report(Verdict.FAULT, warned)))
    assert answer.outcome is FAIL
    assert answer.why == "it makes it worse"


def test_stale_data_refuse_an_action() -> None:
    """Workers that were silent for minutes are not acted upon, and they are named."""
    seen = facts(OLD)
    said = report(Verdict.OVERLOAD, hypothesis("prefill-undersized"))
    plan = make_plan(
        shipped("scale-out-prefill"), seen.view, said, known(seen.view), {}, made_at_s=0.0, asked=Asked.ALERT
    )
    assert plan.decision is Decision.REFUSED
    assert any("prefill-0, prefill-1 do not" in reason for reason in plan.reasons)


def test_without_a_backend_a_plan_is_for_reading() -> None:
    """It shows the steps and is never ready."""
    seen = facts(CALM)
    said = report(Verdict.OVERLOAD, hypothesis("prefill-undersized"))
    plan = make_plan(shipped("scale-out-prefill"), seen.view, said, without_backend(seen.view), {}, made_at_s=0.0)
    assert plan.decision is Decision.HELD
    assert plan.steps[1].target == 3


def test_a_router_that_cannot_take_back_refuses_a_drain() -> None:
    """What is not offered and not optional refuses, with the backend's own words."""
    seen = facts(CALM)
    offered = known(seen.view, without={"worker.cordon": "the router cannot add a worker again"})
    plan = make_plan(
        shipped("scale-in"), seen.view, report(Verdict.HEALTHY), offered, {"worker": "decode-1"}, made_at_s=0.0
    )
    assert plan.decision is Decision.REFUSED
    assert any("the router cannot add a worker again" in reason for reason in plan.reasons)


def test_optional_steps_go_together() -> None:
    """A roll whose middle is not offered is left out whole, so nobody is cordoned for nothing."""
    seen = facts(CALM)
    offered = known(seen.view, without={"worker.reconfigure": "engines here take no options"})
    said = report(Verdict.FAULT, hypothesis("decode-undersized"))
    plan = make_plan(shipped("itl-decode-relief"), seen.view, said, offered, {}, made_at_s=0.0)
    assert plan.decision is Decision.READY
    assert [s.action for s in plan.steps] == ["evidence.keep", "router.limit", "advice.give"]
    assert {left.step for left in plan.left_out} == {"cordon:decode-0", "cordon:decode-1"}


def test_some_guards_are_asked_before_every_effect() -> None:
    """Data, rollout and owner may change while a run goes on; the cause may well go away by it."""
    seen = facts(CALM)
    said = report(Verdict.OVERLOAD, hypothesis("prefill-undersized"))
    plan = make_plan(shipped("scale-out-prefill"), seen.view, said, known(seen.view), {}, made_at_s=0.0)
    assert [a.check for a in again(plan.guards)] == ["data-fresh", "no-rollout", "own-replicas"]


def test_answers_together() -> None:
    """Fail before unknown before pass."""
    assert together([PASS, UNKNOWN, FAIL]) is FAIL
    assert together([PASS, UNKNOWN]) is UNKNOWN
    assert together([]) is PASS


BUSY_AND_WELL = (
    CALM
    + "  kv_cache_usage: {decode-0: {before: 0.3, now: 0.3}, decode-1: {before: 0.3, now: 0.3}}\n"
    + "  request_success: {client: [[-900, 0], [-300, 600], [0, 900]]}\n"
    + "  request_failure: {client: [[-900, 0], [-300, 0], [0, 0]]}\n"
)


def test_a_worker_is_taken_out_when_all_is_well() -> None:
    """Cordoned, drained by the lease, then gone; each step with its way back."""
    seen = facts(BUSY_AND_WELL, report(Verdict.HEALTHY))
    plan = make_plan(
        shipped("scale-in"), seen.view, seen.report, known(seen.view), {"worker": "decode-1"}, made_at_s=0.0
    )
    assert plan.reasons == ()
    assert [(s.action, s.before, s.target) for s in plan.steps[1:]] == [
        ("worker.cordon", False, True),
        ("worker.drain", None, 0),
        ("pool.scale-in", 2, 1),
    ]
    assert [s.undo.action if s.undo else s.no_undo for s in plan.steps[1:]] == [
        "worker.uncordon", "it only waits", "pool.scale-out",
    ]  # fmt: skip
    assert plan.touches == ("pool/decode", "worker/decode-1")
    assert plan.topology


def test_the_last_worker_of_a_role_stays() -> None:
    """With its peer cordoned nobody is left, so the plan is refused and says who must stay."""
    seen = facts(BUSY_AND_WELL, report(Verdict.HEALTHY))
    backend = known(seen.view, **{"worker/decode-0/cordoned": True})
    plan = make_plan(shipped("scale-in"), seen.view, seen.report, backend, {"worker": "decode-1"}, made_at_s=0.0)
    assert plan.decision is Decision.REFUSED
    assert "cordon: 0 other decode workers take requests; 1 must stay while decode-1 is out" in plan.reasons


def test_what_is_kept_is_the_published_diagnosis() -> None:
    """What a restart would destroy the traces of can be read in the journal as `pdops diagnose --json` gives it."""
    seen = facts(SLOW)
    kept = Signals(lambda: (seen.view, seen.report)).evidence()
    assert json.loads(json.dumps(kept, allow_nan=False)) == json.loads(to_json(seen.report))


STOPS = """\
schema: pdops/runbook/v1
id: ours
version: 1
title: Stop one worker
risk: safe
scope: worker
triggers: {by_hand: true}
steps: [{id: stop, action: worker.stop, with: {worker: decode-1}}]
observe_s: 0
cooldown_s: 0
budget_per_hour: 1
will_not_fix: much
"""


def test_a_file_that_calls_itself_safe_is_approved_for_what_it_does() -> None:
    """A step that stops a worker makes the plan disruptive, so somebody else must approve it."""
    seen = facts(CALM, report(Verdict.HEALTHY))
    plan = make_plan(parse_runbook(STOPS), seen.view, seen.report, known(seen.view), {}, made_at_s=0.0)
    assert (plan.decision, plan.risk) == (Decision.READY, Risk.DISRUPTIVE)


def test_nobody_of_unknown_role_is_taken_out() -> None:
    """Without its role nobody can tell how many of its kind would stay."""
    seen = facts(CALM, report(Verdict.HEALTHY))
    backend = known(seen.view, **{"worker/decode-1/role": None})
    plan = make_plan(parse_runbook(STOPS), seen.view, seen.report, backend, {}, made_at_s=0.0)
    assert plan.decision is Decision.HELD
    assert any("what role decode-1 has" in reason for reason in plan.reasons)


def test_the_way_back_is_gated_too() -> None:
    """A path that was taken out comes back only through a canary, and not while data are old."""
    seen = facts(CALM, report(Verdict.HEALTHY))
    backend = known(seen.view, **{"worker/decode-1/cordoned": True})
    values: dict[str, Value] = {"worker": "decode-1"}
    plan = make_plan(
        shipped("kv-transfer-relief"), seen.view, seen.report, backend, values, made_at_s=0.0, recovery=True
    )
    assert plan.decision is Decision.READY
    assert plan.recovery
    assert [s.action for s in plan.steps] == ["pair.canary", "worker.uncordon"]
    old = facts(OLD, report(Verdict.HEALTHY))
    again_ = make_plan(
        shipped("kv-transfer-relief"), old.view, old.report, backend, values, made_at_s=0.0, recovery=True
    )
    assert again_.decision is Decision.REFUSED
