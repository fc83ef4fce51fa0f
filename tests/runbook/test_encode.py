"""Plans as files: what is published fits its schema, and a plan that was touched is refused."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdops.diagnose.engine import diagnose
from pdops.errors import PdopsError, RefusedError, RunbookError
from pdops.runbook.encode import listing_schema, plan_from_json, plan_schema, plan_to_json, runbook_to_json
from pdops.runbook.load import shipped, shipped_ids
from pdops.runbook.make import make_plan
from pdops.runbook.plan import Plan
from pdops.sources.case import case_view, parse_case
from tests.runbook.known import known
from tests.runbook.test_questions import CALM, HEAD


def plan(runbook: str = "scale-out-prefill") -> Plan:
    """Return a plan for a small cluster."""
    view, _ = case_view(parse_case(HEAD + CALM))
    values = {"worker": "decode-1"} if "worker" in shipped(runbook).parameters else {}
    return make_plan(shipped(runbook), view, diagnose(view), known(view), dict(values), made_at_s=0.0)


@pytest.mark.parametrize("runbook_id", shipped_ids())
def test_plans_fit_their_schema_and_come_back(runbook_id: str) -> None:
    """`pdops schema plan` describes what `pdops runbook plan --json` prints."""
    made = plan(runbook_id)
    text = plan_to_json(made)
    jsonschema.Draft202012Validator(plan_schema()).validate(json.loads(text))
    assert plan_from_json(text, path="plan.json") == made


def test_the_listing_fits_its_schema() -> None:
    """`pdops schema runbooks` describes what `pdops runbook list --json` prints."""
    listing = {"schema": "pdops/runbooks/v1", "runbooks": [runbook_to_json(shipped(i)) for i in shipped_ids()]}
    jsonschema.Draft202012Validator(listing_schema()).validate(listing)


@pytest.mark.parametrize(
    "touch",
    [
        lambda p: p.update(decision="ready"),
        lambda p: p["steps"][1].update(target=9),
        lambda p: p["steps"][1]["params"].update(replicas=9),
        lambda p: p.update(expires_at_s=1e12),
        lambda p: p.update(guards=[]),
        lambda p: p.update(id="scale-out-prefill-000000000000"),
        lambda p: p.update(plan_hash="0" * 64),
        lambda p: p["steps"][1].update(extra=1),
    ],
)
def test_a_touched_plan_is_refused(touch: Any) -> None:
    """Whoever approves a plan approves what is carried out."""
    content = json.loads(plan_to_json(plan()))
    touch(content)
    with pytest.raises(RefusedError, match="changed after it was made"):
        plan_from_json(json.dumps(content), path="plan.json")


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"schema": "pdops/plan/v2"}', '{"schema": "pdops/plan/v1"}', "[" * 100_000]
)
def test_what_is_no_plan_is_told(text: str) -> None:
    """With the file and what to do."""
    with pytest.raises(RunbookError) as told:
        plan_from_json(text, path="plan.json")
    assert told.value.where.startswith("plan.json")
    assert told.value.hint


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 6000), st.integers(0, 30), st.text(max_size=5))
def test_a_damaged_plan_is_refused_or_the_same(at: int, cut: int, put: str) -> None:
    """No damage goes through unseen."""
    made = plan()
    text = plan_to_json(made)
    read: Plan | None = None
    told: PdopsError | None = None
    try:
        read = plan_from_json(text[:at] + put + text[at + cut :], path="plan.json")
    except PdopsError as error:
        told = error
    assert read == made or (told is not None and told.hint)
