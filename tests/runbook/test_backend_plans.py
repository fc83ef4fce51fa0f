"""Plans where a backend cannot do what a runbook would: what is left out is said with its reason, and advice stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pdops.actuate.backend import Capabilities
from pdops.actuate.router_admin import ACTIONS, START_OPTIONS
from pdops.actuate.stores import MooncakeMaster
from pdops.runbook.load import shipped
from pdops.runbook.make import make_plan
from pdops.runbook.plan import Decision, Plan
from tests.runbook.known import known
from tests.runbook.test_goldens import judged

CASES = {
    "prefix-cache-fallback": "incidents/097-l3-written-never-read.yaml",
    "kv-store-outage": "incidents/107-mooncake-master-restart-metadata-loss.yaml",
}
MOONCAKE = MooncakeMaster("store-0", "http://127.0.0.1:9").capabilities().missing
ROUTER = Capabilities(frozenset(ACTIONS), START_OPTIONS, "only the router can be changed here")
UNITS = Capabilities(frozenset({*ACTIONS, "store.restart"}), {**START_OPTIONS, **MOONCAKE})
LMCACHE = Capabilities(frozenset({*ACTIONS, "store.bypass", "store.use"}), START_OPTIONS, "only the router")


def _plan(runbook: str, offers: Capabilities) -> Plan:
    found = judged(CASES[runbook])
    world = replace(known(found.view), capabilities=offers)
    return make_plan(shipped(runbook), found.view, found.report, world, {}, made_at_s=found.view.at_s)


@pytest.mark.parametrize("runbook", sorted(CASES))
@pytest.mark.parametrize("offers", [ROUTER, UNITS, LMCACHE], ids=["router", "units", "lmcache"])
def test_what_has_no_switch_is_left_out_with_its_reason_and_advice_stays(runbook: str, offers: Capabilities) -> None:
    plan = _plan(runbook, offers)
    acts = {s.action for s in plan.steps}
    assert acts - {"evidence.keep", "advice.give"} <= offers.offered | {"store.restart"}
    assert any("restarted without" in e or "restart of the engines" in e for e in plan.effects)
    for left in plan.left_out:
        action = left.why.partition(":")[0]
        assert left.why == f"{action}: {offers.refusal(action)}"


def test_a_ladder_without_rungs_is_refused_and_one_with_a_bypass_is_not() -> None:
    assert _plan("prefix-cache-fallback", ROUTER).decision is Decision.REFUSED
    assert [s.action for s in _plan("prefix-cache-fallback", LMCACHE).steps if s.subject] == ["store.bypass"]
    assert _plan("prefix-cache-fallback", LMCACHE).decision is not Decision.REFUSED


def test_a_store_that_cannot_be_started_from_here_refuses_the_plan_and_says_so() -> None:
    plan = _plan("kv-store-outage", ROUTER)
    assert (plan.decision, any("only the router can be changed here" in r for r in plan.reasons)) == (
        Decision.REFUSED,
        True,
    )
    assert _plan("kv-store-outage", UNITS).decision is Decision.READY
