"""Every shipped runbook planned on a double of a Kubernetes API server: what is offered there, and what not and why.

`PDOPS_UPDATE=1 python -m pytest tests/runbook` writes the golden again.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pdops.actuate.kubernetes_model import ROUTED, Workload
from pdops.model.cluster import Role
from pdops.reference.render.rbac import operator_rules
from pdops.runbook.load import shipped, shipped_ids
from pdops.runbook.make import BackendState, make_plan
from pdops.runbook.plan import Asked
from tests.actuate.kubernetes_kit import Kit
from tests.reference.render.plans import plan as deployment
from tests.runbook.test_goldens import PLANS, judged

GOLDEN = Path(__file__).parent / "goldens" / "kubernetes.txt"
RENDERED = operator_rules(deployment(store=True))
LOOK_ONLY = [{**r, "verbs": [v for v in r["verbs"] if v in ("get", "list", "watch")]} for r in RENDERED]
RULES = {
    "the rendered role": RENDERED,
    "an autoscaler": RENDERED,
    "no router": operator_rules(replace(deployment(store=True), router=None)),
    "a role that may only look": LOOK_ONLY,
}
STORE = Workload(kind="Deployment", name="store")
ROLES = ("prefill", "decode")


def planned(path: Path, how: str) -> str:
    """Return what becomes of each runbook, with the reasons."""
    lines = []
    for golden, runbook, source, _, values in PLANS:
        if golden not in shipped_ids():
            continue
        path.joinpath(golden).mkdir(parents=True)
        seen = judged(source)
        counts = {role: len(seen.view.cluster.of_role(Role(role))) for role in ROLES}
        stores = seen.view.cluster.of_role(Role.KVSTORE)
        with Kit(path / golden, RULES[how]) as kit:
            kit.pools(*counts.values(), labels={ROUTED: "true"})
            for role in ROLES:
                chosen = {"role": role, ROUTED: "true"}
                kit.double.put("services", {"metadata": {"name": role}, "spec": {"selector": chosen}})
                if how == "an autoscaler":
                    kit.autoscaler(role, 1, 9, wish=counts[role])
            if stores:
                kit.double.workload("kvstore", 1, kind="Deployment", name="store")
            backend = kit.backend(
                router=how != "no router",
                max_replicas=dict.fromkeys(ROLES, 9),
                canary=lambda _: (),
                store=STORE if stores else None,
                store_id=stores[0].id if stores else "",
            )
            state = BackendState("kubernetes", backend.observe(), backend.capabilities())
            plan = make_plan(shipped(runbook), seen.view, seen.report, state, values, made_at_s=0.0, asked=Asked.PERSON)
        lines.append(f"{runbook}: {plan.decision}")
        lines += [f"  {reason}" for reason in plan.reasons]
        lines += [f"  left out: {left.step}: {left.why}" for left in plan.left_out]
    return "\n".join(lines) + "\n"


@pytest.mark.timeout(600)
def test_what_is_offered_on_kubernetes(tmp_path: Path) -> None:
    text = "\n".join(f"# with {how}\n{planned(tmp_path / how, how)}" for how in RULES)
    if os.environ.get("PDOPS_UPDATE"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == text


def test_no_runbook_is_left_out() -> None:
    assert {p[1] for p in PLANS if p[0] in shipped_ids()} == set(shipped_ids())
    assert len(shipped_ids()) == 16
