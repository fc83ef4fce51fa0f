"""Rules: one place for each alert that a check names, links that lead somewhere, files that are what the data says."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest
import yaml

from pdops.cli import main
from pdops.diagnose import pages as checks_pages
from pdops.diagnose.checks import ALL
from pdops.errors import UsageError
from pdops.grafana.promlint import names
from pdops.grafana.rules import build, burn, cases, pages, shipped
from pdops.grafana.rules.check import _said, linted, schema
from pdops.grafana.rules.types import Alert
from pdops.model.report import Symptom

EVERY = build.alerts()
every_alert = pytest.mark.parametrize("alert", EVERY, ids=lambda a: a.id)
DASHBOARDS = {"overview", "prefill", "decode", "kv-transfer", "capacity", "diagnosis"}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    """Run pdops and return its exit status, stdout and stderr."""

    def call(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(args))
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return call


def test_every_alert_that_a_check_names_is_there_and_tells_that_check() -> None:
    made = {alert.name: alert.check for alert in EVERY}
    for check in ALL:
        if check.meta.alert is not None:
            assert made[check.meta.alert] == check.meta.id


def test_an_alert_is_told_apart_from_others_of_its_name() -> None:
    assert len({alert.id for alert in EVERY}) == len(EVERY)


@every_alert
def test_labels_and_texts(alert: Alert) -> None:
    assert _said(alert) == []
    rule = build.rule(alert, build.Links("https://wiki.example/", "https://grafana.example/d/pdops-"))
    notes = rule["annotations"]
    assert notes["runbook_url"] == f"https://wiki.example/{alert.name}"
    assert notes["dashboard_url"].startswith(f"https://grafana.example/d/pdops-{alert.board}")
    assert alert.board in DASHBOARDS
    assert not alert.summary.endswith(".")
    assert alert.do.endswith(".")
    assert rule["labels"]["severity"] in ("critical", "warning", "info", "none")


@every_alert
def test_page(alert: Alert) -> None:
    page = pages.find(alert.name)
    assert page is not None
    assert alert.expr in page.text
    assert alert.do in page.text
    behind = checks_pages.find(alert.check) if alert.check else None
    if behind is not None:
        assert behind.text in page.text


@every_alert
def test_every_alert_has_its_situations(alert: Alert) -> None:
    made = cases.cases(alert)
    assert cases.untested([alert]) == ()
    if alert.name == "Watchdog":
        return
    assert {case.fires for case in made} == {True, False}
    titles = [case.title for case in made]
    assert any(t.startswith("without") for t in titles)
    if not alert.absence:
        assert "just below the threshold" in titles
    counting = any(s.partition("{")[0].endswith(("_total", "_sum", "_count")) for s in alert.inputs)
    fixed = all(isinstance(cases.pick(i, 1), str) for s, i in alert.inputs.items() if "_total" in s or "_sum" in s)
    assert any("begin anew" in t for t in titles) or not counting or fixed


def test_lint_finds_nothing() -> None:
    assert linted() == []


def test_lint_of_rules_names_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Alert(name="PDWrong", expr="rate(pdops_kv_cache_usage[5m])", summary="x", do="x.", symptom=Symptom.TTFT)
    monkeypatch.setattr(build, "alerts", lambda: (wrong,))
    assert any(said.startswith("PDWrong: rate of pdops_kv_cache_usage") for said in linted())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"summary": "{{ $labels.worker }}", "keeps": ("cluster", "pool")}, "no label worker"),
        ({"keeps": ("cluster",)}, "which pool"),
        ({"pool": "decode"}, "hides the pool"),
        ({"symptom": None}, "a cause or a symptom"),
        ({"symptom": None, "cause": "no-such-cause"}, "no cause"),
    ],
)
def test_labels_that_do_not_fit_are_said(wrong, said) -> None:
    fine = {"name": "PDX", "expr": "x", "summary": "x", "do": "x.", "symptom": Symptom.TTFT}
    assert _said(Alert(**fine)) == []
    assert any(said in text for text in _said(Alert(**{**fine, **wrong})))


def test_recording_rules_are_named_level_metric_operation_and_used_once() -> None:
    rules = build.recorded()
    assert len({rule.name for rule in rules}) == len(rules)
    for rule in rules:
        level, metric, operation = rule.name.split(":")
        assert level in ("pool", "worker", "pair", "cluster", "slo")
        assert metric.startswith("pdops_")
        assert operation


def test_a_rule_comes_after_those_it_rests_on() -> None:
    seen: set[str] = set()
    known = {rule.name for rule in build.recorded()}
    for rule in build.recorded():
        assert names(rule.expr) & known <= seen, rule.name
        seen.add(rule.name)


def test_shipped_files_are_what_the_data_says() -> None:
    assert shipped.drift(shipped.place()) == ()


def test_drift_names_what_is_missing_changed_or_left_over(tmp_path, run) -> None:
    assert set(shipped.write(tmp_path).values()) == {True}
    assert set(shipped.write(tmp_path).values()) == {False}
    assert shipped.drift(tmp_path) == ()
    (tmp_path / "rules-slo.yaml").write_text("x")
    (tmp_path / "rules-alerts.yaml").unlink()
    (tmp_path / "rules-old.yaml").write_text("x")
    assert shipped.drift(tmp_path) == ("rules-alerts.yaml", "rules-old.yaml", "rules-slo.yaml")
    status, out, _ = run("rules", "build", "--check", "-o", str(tmp_path))
    assert status == 1
    assert out.count("not what") == 3


def test_links_can_be_set(tmp_path, run) -> None:
    run(
        "rules", "build", "-o", str(tmp_path), "--runbook-url", "https://wiki/", "--dashboard-url", "https://g/d/pdops-"
    )
    found = yaml.safe_load((tmp_path / "rules-alerts.yaml").read_text())
    notes = [r["annotations"] for g in found["groups"] for r in g["rules"]]
    assert {n["runbook_url"][:13] for n in notes} == {"https://wiki/"}
    assert {n["dashboard_url"][:18] for n in notes} == {"https://g/d/pdops-"}


@pytest.mark.parametrize("option", ["--runbook-url", "--dashboard-url"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "wiki",
        "hello world",
        "ftp://wiki/",
        "https://",
        "https://wiki/{{ x",
        "https://me:secret@wiki/",
        "http://[::1",
    ],
)
def test_a_link_that_leads_nowhere_is_refused(tmp_path, run, option: str, text: str) -> None:
    status, _, said = run("rules", "build", "-o", str(tmp_path), option, text)
    assert status == 2
    assert "links cannot begin with this" in said
    assert "hint:" in said
    assert "secret" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("objective", "ok"), [(0.95, True), (0.901, True), (0.9, False), (0.5, False), (1.0, False), (0.0, False)]
)
def test_an_objective_under_which_an_alert_cannot_fire_is_refused(objective: float, ok: bool) -> None:
    if ok:
        burn.reachable(objective)
        return
    with pytest.raises(UsageError):
        burn.reachable(objective)


def test_the_textbook_pair_cannot_be_reached_at_ninety_percent() -> None:
    with pytest.raises(UsageError, match=r"14.4x over 1h can never fire"):
        burn.reachable(0.9, burn.AVAILABILITY)


def test_availability_has_pairs_it_can_reach() -> None:
    burn.reachable(burn.AVAILABILITY_OBJECTIVE, burn.AVAILABILITY)


def test_folder_that_cannot_be_written_is_said(tmp_path, run) -> None:
    (tmp_path / "file").write_text("")
    status, _, said = run("rules", "build", "-o", str(tmp_path / "file" / "rules"))
    assert status == 2
    assert "rules cannot be written" in said
    assert "hint:" in said


def test_check_without_promtool_says_what_it_could_not_do(monkeypatch: pytest.MonkeyPatch, run) -> None:
    from pdops.grafana.rules import promtool

    monkeypatch.setattr(promtool, "promtool", lambda: None)
    status, out, said = run("rules", "check")
    assert status == 0
    assert re.search(r"\d+ recording rules, \d+ alerts with \d+ test cases: nothing wrong", out)
    assert "promtool is not installed" in said


def test_what_check_prints_for_scripts_follows_its_schema(run) -> None:
    _, out, _ = run("rules", "check", "--no-tests", "--json")
    jsonschema.validate(json.loads(out), schema())


def test_explain_answers_for_an_alert_in_any_case(run) -> None:
    status, out, _ = run("explain", "pdkvtransferslow")
    assert status == 0
    assert out.startswith("# PDKvTransferSlow\n")
    assert "# transfer/link-slow" in out
