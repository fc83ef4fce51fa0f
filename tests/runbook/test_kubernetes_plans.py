"""Every shipped runbook planned on a double of a Kubernetes API server: what is offered there, and what not and why.

`PDOPS_UPDATE=1 python -m pytest tests/runbook` writes the golden again.
"""

from __future__ import annotations

import os
from pathlib import Path

from pdops.actuate.kubernetes_model import ROUTED
from pdops.model.cluster import Role
from pdops.runbook.load import shipped, shipped_ids
from pdops.runbook.make import BackendState, make_plan
from pdops.runbook.plan import Asked
from tests.actuate.kubernetes_kit import RULES, Kit
from tests.runbook.test_goldens import PLANS, judged

GOLDEN = Path(__file__).parent / "goldens" / "kubernetes.txt"
LOOK_ONLY = [{**r, "verbs": [v for v in r["verbs"] if v in ("get", "list", "watch")]} for r in RULES]


def planned(path: Path, how: str) -> str:
    """Return what becomes of each runbook, with the reasons."""
    lines = []
    for golden, runbook, source, _, values in PLANS:
        if golden not in shipped_ids():
            continue
        seen = judged(source)
        path.joinpath(golden).mkdir()
        with Kit(path / golden, LOOK_ONLY if how == "a role that may only look" else RULES) as kit:
            kit.pools(
                *(len(seen.view.cluster.of_role(Role(r))) for r in ("prefill", "decode")), labels={ROUTED: "true"}
            )
            if how == "an autoscaler":
                for role in ("prefill", "decode"):
                    kit.autoscaler(role, 1, 9, wish=len(seen.view.cluster.of_role(Role(role))))
            backend = kit.backend(
                router=how != "no router", max_replicas={"prefill": 9, "decode": 9}, canary=lambda _: ()
            )
            state = BackendState("kubernetes", backend.observe(), backend.capabilities())
            plan = make_plan(shipped(runbook), seen.view, seen.report, state, values, made_at_s=0.0, asked=Asked.PERSON)
            lines.append(f"{runbook}: {plan.decision}")
            lines += [f"  {reason}" for reason in plan.reasons]
            lines += [f"  left out: {left}" for left in plan.left_out]
    return "\n".join(lines) + "\n"


def test_what_is_offered_on_kubernetes(tmp_path: Path) -> None:
    text = ""
    for how in ("the rendered role", "an autoscaler", "no router", "a role that may only look"):
        (tmp_path / how).mkdir()
        text += f"# with {how}\n{planned(tmp_path / how, how)}\n"
    if os.environ.get("PDOPS_UPDATE"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == text


def test_no_runbook_is_left_out() -> None:
    assert {p[1] for p in PLANS if p[0] in shipped_ids()} == set(shipped_ids())
    assert len(shipped_ids()) == 16
