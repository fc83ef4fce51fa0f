"""Runbook files: shipped ones are sound, wrong ones are told with their line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pdops.errors import PdopsError, RunbookError
from pdops.model.cluster import Role
from pdops.runbook.actions import SHIPPED, actions
from pdops.runbook.encode import runbook_schema, runbook_to_json
from pdops.runbook.lint import lint
from pdops.runbook.load import find_runbook, load_runbook, parse_runbook, shipped, shipped_ids
from pdops.runbook.model import Mode, New

SIXTEEN = {
    "scale-out-prefill", "scale-out-decode", "scale-in", "cold-start", "shutdown", "restart-worker", "restart-pair",
    "prefix-cache-fallback", "kv-transfer-relief", "kv-store-outage", "itl-decode-relief", "ttft-prefill-relief",
    "routing-rebalance", "backpressure-break", "ratio-rebalance", "wrong-answer-quarantine",
}  # fmt: skip
SMALL = """\
schema: pdops/runbook/v1
id: small
version: 1
title: Restart one worker
risk: disruptive
scope: worker
triggers: {by_hand: true}
parameters:
  worker: {type: worker, roles: [decode], help: who}
  lease_s: {type: integer, min: 30, max: 600, default: 30, help: lease}
steps:
  - id: drain
    action: worker.drain
    with: {worker: {param: worker}, lease_s: {param: lease_s}}
    verify: [{check: empty, with: {worker: {param: worker}, lease_s: 30}}]
observe_s: 60
cooldown_s: 60
budget_per_hour: 1
will_not_fix: much
"""


def test_the_sixteen_are_shipped_and_nothing_is_to_be_said_about_them() -> None:
    """Ids are those a diagnosis names, and lint has no remark."""
    assert set(shipped_ids()) == SIXTEEN
    assert [(i, remark) for i in shipped_ids() for remark in lint(shipped(i))] == []
    assert all(shipped(i).id == i for i in shipped_ids())


@pytest.mark.parametrize("name", ["e.json", "ours", "ours.yml"])
def test_a_file_that_is_there_is_a_path(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(SMALL)
    assert find_runbook(name).id == "small"


def test_a_file_does_not_take_the_place_of_a_shipped_runbook_without_a_slash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scale-in").write_text(SMALL)
    assert find_runbook("scale-in").id == "scale-in"
    assert find_runbook("./scale-in").id == "small"


def test_every_shipped_runbook_only_advises_and_says_what_it_will_not_fix() -> None:
    """Nothing acts before somebody has said so."""
    for runbook in map(shipped, shipped_ids()):
        assert runbook.mode is Mode.ADVISE
        assert len(runbook.will_not_fix) > 60
        assert runbook.notes


def test_seed_operations_without_a_switch_are_named() -> None:
    """KV eviction and sorted batching are said to have no switch."""
    notes = " ".join(shipped("itl-decode-relief").notes)
    assert "KV eviction is no switch" in notes
    assert "Sorted batching is no switch" in notes


def test_recovery_is_a_run_of_its_own() -> None:
    """The way back has its own steps and no way back of its own."""
    back = shipped("prefix-cache-fallback").recovering()
    assert back is not None
    assert back.recovering() is None
    assert [s.action for s in back.steps] == ["router.salt", "router.salt", "store.use", "router.policy"]
    assert shipped("scale-in").recovering() is None


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_scale_out_does_not_ask_the_newcomer_for_data_before_it_goes_on(role: str) -> None:
    """Else the worker that it has just started, and that was not read yet, would have it taken back."""
    (fresh,) = [g for g in shipped(f"scale-out-{role}").guards if g.check == "data-fresh"]
    assert fresh.with_["aside"] == New(new=Role(role))


def test_inverses_exist_and_take_each_other_back() -> None:
    """An action that names an inverse names one of the list."""
    for spec in SHIPPED:
        if spec.inverse is not None:
            assert actions()[spec.inverse].inverse == spec.name


WRONG = [
    ("    action: worker.drain", "    if_fails: {param: worker}\n    action: worker.drain", ":13", "not a choice of stop and degrade", "give it those"),
    ("    action: worker.drain", "    if_fails: {param: worer}\n    action: worker.drain", ":13", "no parameter 'worer'", "did you mean 'worker'?"),
    ("action: worker.drain", "action: worker.drian", ":13", "no action 'worker.drian'", "did you mean 'worker.drain'?"),
    ("action: worker.drain", "action: rm -rf /", ":13", "not an action", "OBJECT.VERB"),
    ("check: empty", "check: emptty", ":15", "no check 'emptty'", "did you mean 'empty'?"),
    ("{param: lease_s}}\n    verify", "{param: laese_s}}\n    verify", ":14", "no parameter 'laese_s'", "did you mean 'lease_s'?"),
    ("max: 600", "max: 7200", ":14", "which parameter 'lease_s' may be", ""),
    ("max: 600", "max: 10", ":10", "min, default and max are not in order", ""),
    ("lease_s: 30}}]", "lease_s: 30, color: red}}]", ":15", "unknown key 'color'", "lease_s"),
    ("worker: {param: worker}, lease_s: {param", "worker: {each: worker}, lease_s: {param", ":14", "needs for_each", ""),
    ("budget_per_hour: 1", "budget_per_hour: 1\nshell: ls", ":19", "unknown key 'shell'", ""),
    ("risk: disruptive", "risk: disruptive\nmode: auto", ":1", "may not be automatic", "approve"),
    ("risk: disruptive", "risk: disruptive\nmin_ready: 0", ":1", "min_ready 0", "dangerous"),
    ("by_hand: true", "by_hand: false", ":1", "nothing may start it", ""),
    ("roles: [decode]", "roles: []", ":9", "needs roles", ""),
    ("title: Restart one worker", "title: '{{ x }}'\nid: small", ":5", "given twice", ""),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "why", "hint"), WRONG, ids=[w[1][:24] for w in WRONG])
def test_a_mistake_is_told_with_its_line(old: str, new: str, line: str, why: str, hint: str) -> None:
    """File, line, what is wrong, and what to do."""
    assert old in SMALL
    with pytest.raises(RunbookError) as told:
        parse_runbook(SMALL.replace(old, new, 1), path="ours.yaml")
    assert told.value.where == f"ours.yaml{line}"
    assert why in told.value.why
    assert hint in told.value.hint
    assert told.value.hint


def test_text_in_double_braces_stays_text() -> None:
    """There are no templates: what looks like one is the title it is."""
    runbook = parse_runbook(SMALL.replace("Restart one worker", "'{{ 7 * 7 }} ${HOME}'"))
    assert runbook.title == "{{ 7 * 7 }} ${HOME}"


@pytest.mark.parametrize(
    "text", ["a: &a [*a]", "a: &x 1\nb: *x", "a: " + "[" * 40 + "]" * 40, "!!python/object:os.system x", ""]
)
def test_aliases_tags_and_depth_are_refused(text: str) -> None:
    """Nothing grows or runs while it is read."""
    with pytest.raises(RunbookError) as told:
        parse_runbook(text, path="x.yaml")
    assert told.value.where.startswith("x.yaml:")


def test_an_unknown_id_and_a_missing_file_are_told(tmp_path: object) -> None:
    """Near ids are offered."""
    with pytest.raises(RunbookError, match="no such runbook") as told:
        find_runbook("scale-out-prefil")
    assert told.value.hint == "did you mean 'scale-out-prefill'?"
    with pytest.raises(RunbookError) as missing:
        find_runbook(f"{tmp_path}/none.yaml")
    assert missing.value.hint


def test_a_runbook_from_a_file_is_the_same_as_from_the_package(tmp_path: object) -> None:
    """JSON is YAML, and what is printed can be read again."""
    import json
    from pathlib import Path

    for runbook_id in shipped_ids():
        path = Path(str(tmp_path)) / f"{runbook_id}.yaml"
        path.write_text(json.dumps(runbook_to_json(shipped(runbook_id))), encoding="utf-8")
        assert load_runbook(path) == shipped(runbook_id)


def test_shipped_runbooks_fit_the_schema() -> None:
    """An editor that checks by the schema does not complain about what pdops takes."""
    import jsonschema

    validator = jsonschema.Draft202012Validator(runbook_schema())
    for runbook_id in shipped_ids():
        validator.validate(runbook_to_json(shipped(runbook_id)))


_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
_TREES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_a_changed_runbook_is_read_or_told_never_more(data: st.DataObject) -> None:
    """Any value put anywhere either loads or is an error of ours with file, line and hint."""
    content = runbook_to_json(shipped(data.draw(st.sampled_from(sorted(SIXTEEN)))))
    here: object = content
    while True:
        steps: list[object] = (
            list(here) if isinstance(here, dict) else list(range(len(here))) if isinstance(here, list) else []
        )
        step = data.draw(st.sampled_from(steps))
        below = here[step]  # type: ignore[index]
        if not below or not isinstance(below, dict | list) or data.draw(st.booleans()):
            here[step] = data.draw(_TREES)  # type: ignore[index]
            break
        here = below
    _try(yaml.safe_dump(content, allow_unicode=True))


@settings(max_examples=120, deadline=None)
@given(st.integers(0, len(SMALL)), st.integers(0, 40), st.text(max_size=10))
def test_a_damaged_file_is_told(at: int, cut: int, put: str) -> None:
    """Cutting and pasting anywhere gives no traceback."""
    _try(SMALL[:at] + put + SMALL[at + cut :])


def _try(text: str) -> None:
    told: PdopsError | None = None
    try:
        parse_runbook(text, path="fuzz.yaml")
    except PdopsError as error:
        told = error
    assert told is None or (told.where.startswith("fuzz.yaml:") and told.why and told.hint)


def test_every_runbook_a_check_proposes_ships() -> None:
    """A diagnosis never names what nobody can plan."""
    import re
    from importlib import resources

    named: set[str] = set()
    for item in resources.files("pdops.diagnose.checks").iterdir():
        if item.name.endswith(".py"):
            for group in re.findall(r"runbooks=\(([^)]*)\)", item.read_text(encoding="utf-8")):
                named |= set(re.findall(r'"([a-z][a-z-]+)"', group))
    assert "kv-transfer-relief" in named
    assert named <= SIXTEEN


@pytest.mark.parametrize(
    ("triggers", "why", "hint"),
    [
        ("{alerts: [PDTtftHihg]}", "no shipped rule is named 'PDTtftHihg'", "did you mean 'PDTtftHigh'?"),
        ("{alerts: [PDTtftHigh, pdttfthigh]}", "'pdttfthigh'", "did you mean 'PDTtftHigh'?"),
        ("{diagnosis: {causes: [prefill-undersizd]}}", "no cause 'prefill-undersizd'", "did you mean 'prefill-undersized'?"),
        ("{diagnosis: {checks: [transfer/lnk-slow]}}", "no check 'transfer/lnk-slow'", "did you mean 'transfer/link-slow'?"),
        ("{diagnosis: {checks: [x]}}", "no check 'x'", "explain --list"),
    ],
)  # fmt: skip
def test_a_trigger_that_nothing_is_named_is_refused(triggers: str, why: str, hint: str) -> None:
    with pytest.raises(RunbookError) as told:
        parse_runbook(SMALL.replace("{by_hand: true}", triggers), path="ours.yaml")
    assert told.value.where == "ours.yaml:7"
    assert why in told.value.why
    assert hint in told.value.hint


def test_rules_of_ones_own_may_start_a_runbook() -> None:
    names = "PDTtftHighInEurope, OurQueueAlert"
    assert parse_runbook(SMALL.replace("{by_hand: true}", f"{{alerts: [{names}]}}")).triggers.alerts == tuple(
        names.split(", ")
    )
