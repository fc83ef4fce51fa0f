"""Plans of real and written incidents, word for word. `PDOPS_UPDATE=1 python -m pytest tests/runbook` writes them again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from pdops.actuate.backend import Value
from pdops.diagnose import scan
from pdops.diagnose.engine import diagnose
from pdops.diagnose.scan import Judged
from pdops.runbook.load import shipped, shipped_ids
from pdops.runbook.make import make_plan
from pdops.runbook.plan import Asked, Decision
from pdops.runbook.text import render_plan
from pdops.sources.case import case_view, load_case
from pdops.sources.recording import open_recording
from tests.runbook.known import known

HERE = Path(__file__).parent / "goldens"
FIXTURES = Path(__file__).parent.parent.parent / "fixtures"

PLANS: tuple[tuple[str, str, str, Decision, Mapping[str, Value]], ...] = (
    ("scale-out-prefill", "scale-out-prefill", "cases/symptom-1-ttft.yaml", Decision.READY, {}),
    ("ttft-prefill-relief", "ttft-prefill-relief", "cases/symptom-1-ttft.yaml", Decision.READY, {}),
    ("scale-out-decode", "scale-out-decode", "cases/symptom-2-itl.yaml", Decision.READY, {}),
    ("itl-decode-relief", "itl-decode-relief", "cases/symptom-2-itl.yaml", Decision.READY, {}),
    ("kv-transfer-relief", "kv-transfer-relief", "cases/symptom-3-errors.yaml", Decision.READY, {}),
    ("ratio-rebalance", "ratio-rebalance", "cases/symptom-4-goodput.yaml", Decision.READY, {}),
    ("routing-rebalance", "routing-rebalance", "cases/symptom-5-skew.yaml", Decision.READY, {}),
    (
        "kv-store-outage",
        "kv-store-outage",
        "incidents/107-mooncake-master-restart-metadata-loss.yaml",
        Decision.READY,
        {},
    ),
    ("prefix-cache-fallback", "prefix-cache-fallback", "incidents/097-l3-written-never-read.yaml", Decision.HELD, {}),
    ("wrong-answer-quarantine", "wrong-answer-quarantine", "recordings/stale-pull.pdrec", Decision.REFUSED, {}),
    ("restart-pair", "restart-pair", "recordings/peer-restart-stale-state.pdrec", Decision.REFUSED, {}),
    ("restart-worker", "restart-worker", "recordings/prefill-frozen.pdrec", Decision.READY, {}),
    ("backpressure-break", "backpressure-break", "incidents/118-lmcache-three-way-deadlock.yaml", Decision.READY, {}),
    ("cold-start", "cold-start", "recordings/prefill-killed.pdrec", Decision.READY, {}),
    ("scale-in", "scale-in", "cases/symptom-5-skew.yaml", Decision.REFUSED, {"worker": "decode-1"}),
    ("shutdown", "shutdown", "cases/symptom-1-ttft.yaml", Decision.READY, {}),
    ("scale-out-prefill-disagrees", "scale-out-prefill", "recordings/link-slow.pdrec", Decision.REFUSED, {}),
    ("scale-out-prefill-healthy", "scale-out-prefill", "recordings/healthy-load.pdrec", Decision.REFUSED, {}),
)


@cache
def judged(name: str) -> Judged:
    """Return what a case or the strongest instant of a recording says."""
    if name.endswith(".yaml"):
        view, _ = case_view(load_case(FIXTURES / name))
        return Judged(view, diagnose(view))
    record = open_recording(FIXTURES / name)
    return scan.strongest(record.iter_frames(), record.cluster, interval_s=record.interval_s)


@pytest.mark.parametrize(("golden", "runbook", "source", "decision", "values"), PLANS, ids=[p[0] for p in PLANS])
def test_plan_of_an_incident(
    golden: str, runbook: str, source: str, decision: Decision, values: Mapping[str, Value]
) -> None:
    """The plan says what would change, what it was, how it is verified and undone, or why nothing is done."""
    seen = judged(source)
    plan = make_plan(
        shipped(runbook), seen.view, seen.report, known(seen.view), values, made_at_s=0.0, asked=Asked.PERSON
    )
    text = render_plan(plan, width=110, style=lambda text, _look: text)
    # The id holds a hash of the very moment that was judged, which moves whenever a check gets better.
    text = text.replace(plan.id, f"{plan.runbook}-HASH")
    path = HERE / f"{golden}.txt"
    if os.environ.get("PDOPS_UPDATE"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text
    assert plan.decision is decision


def test_every_runbook_has_a_golden_plan() -> None:
    """No runbook ships whose plan nobody has read."""
    assert {p[1] for p in PLANS} == set(shipped_ids())
