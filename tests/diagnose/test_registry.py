"""One id, many places: each check has its page, its test and its golden report, and names only what exists."""

from __future__ import annotations

import ast
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdops.catalog.load import catalog
from pdops.catalog.log_lines import log_lines
from pdops.diagnose import checks as package
from pdops.diagnose.checks import ALL, CHECKS, PREFLIGHT
from pdops.diagnose.finding import ANYTHING, Check
from pdops.diagnose.preflight import Outcome, overall
from pdops.diagnose.preflight_run import run_preflight
from tests.diagnose.build import GOLDEN, view

HERE = Path(__file__).parent
SOURCE = Path(package.__file__).parent
FAMILIES = frozenset(
    [
        "pair",
        "host",
        "startup",
        "prefill",
        "decode",
        "transfer",
        "kvstore",
        "network",
        "router",
        "capacity",
        "client",
        "telemetry",
    ]
)
RUNBOOKS = frozenset(
    [
        "scale-out-prefill",
        "scale-out-decode",
        "scale-in",
        "cold-start",
        "shutdown",
        "restart-worker",
        "restart-pair",
        "prefix-cache-fallback",
        "kv-transfer-relief",
        "kv-store-outage",
        "itl-decode-relief",
        "ttft-prefill-relief",
        "routing-rebalance",
        "backpressure-break",
        "ratio-rebalance",
        "wrong-answer-quarantine",
    ]
)
ACTIONS = RUNBOOKS | frozenset(
    [
        "enable-chunked-prefill",
        "restart-victim",
        "raise-retries",
        "evict-kv",
        "lower-batch",
        "disable-prefix-cache",
        "scale-in-prefill",
        "shorten-timeout",
    ]
)
HEADINGS = (
    "What it looks at",
    "What it concludes",
    "Common causes",
    "What to do",
    "What not to do",
    "When it cannot tell",
)

every_check = pytest.mark.parametrize("check", ALL, ids=lambda check: check.meta.id)
each_of_a_diagnosis = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.meta.id)
each_of_preflight = pytest.mark.parametrize("check", PREFLIGHT, ids=lambda check: check.meta.id)


def stem(check: Check) -> str:
    return check.meta.id.replace("/", "_").replace("-", "_")


def strings(node: ast.AST) -> Iterator[str]:
    return (n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str))


def arguments(path: Path, name: str) -> Iterator[ast.expr]:
    """Yield what is given for a keyword anywhere in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield from (k.value for k in node.keywords if k.arg == name)


def test_every_file_is_registered_once_and_ids_are_unique() -> None:
    files = {m.name for m in pkgutil.iter_modules([str(SOURCE)])}
    assert sorted(stem(c) for c in ALL) == sorted(files)
    assert len({c.meta.id for c in ALL}) == len(ALL)


@every_check
def test_id_is_the_file_name_and_the_family_is_known(check: Check) -> None:
    assert check.run.__module__.rpartition(".")[2] == stem(check)
    family, _, name = check.meta.id.partition("/")
    assert family in FAMILIES
    assert name
    assert check.meta.title


@every_check
def test_page(check: Check) -> None:
    text = (SOURCE / f"{stem(check)}.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[0] == f"# {check.meta.id}"
    assert len(lines) <= 60
    assert tuple(line[3:] for line in lines if line.startswith("## ")) == HEADINGS
    assert max(map(len, lines)) <= 130
    for cause in check.meta.causes if len(check.meta.causes) <= 4 else ():
        assert cause in text


@every_check
def test_test(check: Check) -> None:
    assert (HERE / "checks" / f"test_{stem(check)}.py").is_file()


@each_of_a_diagnosis
def test_golden_report(check: Check) -> None:
    report = json.loads((GOLDEN / f"{stem(check)}.json").read_text(encoding="utf-8"))
    top = report["hypotheses"][:1]
    assert (top and top[0]["check"] == check.meta.id) or report["missing"]


def test_no_golden_report_without_a_check() -> None:
    assert {p.stem for p in GOLDEN.glob("*.json")} == {stem(c) for c in ALL}


@every_check
def test_alert_and_panel_or_a_reason(check: Check) -> None:
    meta = check.meta
    if meta.no_alert is None:
        assert meta.alert is not None
        assert meta.alert.startswith("PD")
        assert meta.panel is not None
        assert "/" in meta.panel
    else:
        assert (meta.alert, meta.panel) == (None, None)
        assert len(meta.no_alert) > 20


@every_check
def test_causes_and_signals_exist(check: Check) -> None:
    known = catalog()
    assert check.meta.causes
    assert set(check.meta.causes) <= set(known.causes)
    assert set(check.meta.explains) - {ANYTHING} <= set(known.causes)
    assert set(check.meta.needs) <= set(known.signals)
    assert not set(check.meta.causes) & set(check.meta.explains)


@every_check
def test_causes_named_in_the_code_are_told_in_its_description(check: Check) -> None:
    path = SOURCE / f"{stem(check)}.py"
    named = {text for value in arguments(path, "cause") for text in strings(value)}
    assert named <= set(check.meta.causes)


@pytest.mark.parametrize("path", sorted(SOURCE.parent.rglob("*.py")), ids=lambda p: p.name)
def test_runbooks_and_actions_in_the_code_exist(path: Path) -> None:
    books = {text for value in arguments(path, "runbooks") for text in strings(value)}
    actions = {text for value in arguments(path, "action") for text in strings(value)}
    assert books <= RUNBOOKS
    assert actions <= ACTIONS


def test_runbooks_of_log_lines_exist() -> None:
    assert {book for spec in log_lines() for book in spec.runbooks} <= RUNBOOKS


@each_of_a_diagnosis
def test_golden_reports_name_only_what_exists(check: Check) -> None:
    report = json.loads((GOLDEN / f"{stem(check)}.json").read_text(encoding="utf-8"))
    for found in report["hypotheses"]:
        assert found["cause"] in catalog().causes
        assert set(found["runbooks"]) <= RUNBOOKS
        assert {d["action"] for d in found["do_not"]} <= ACTIONS
        assert found["for"]
        assert found["next"]
    assert {r["cause"] for r in report["ruled_out"]} <= set(catalog().causes)


@every_check
def test_no_check_asks_for_a_signal_it_does_not_list(check: Check) -> None:
    """Signals that a check names in its code are listed in `needs`, so that its page tells them."""
    tree = ast.parse((SOURCE / f"{stem(check)}.py").read_text(encoding="utf-8"))
    used = {text for text in strings(tree) if text in catalog().signals}
    assert used <= set(check.meta.needs)


def test_checks_come_in_order_of_thought() -> None:
    tiers = [check.meta.tier for check in CHECKS]
    assert tiers == sorted(tiers)


def test_a_diagnosis_runs_no_preflight_check() -> None:
    assert not any(check.meta.preflight for check in CHECKS)
    assert all(check.meta.preflight for check in PREFLIGHT)


def test_preflight_modules_are_sorted() -> None:
    assert [stem(c) for c in PREFLIGHT] == sorted(stem(c) for c in PREFLIGHT)


@each_of_preflight
def test_golden_findings_of_preflight_show_something_wrong_and_name_only_what_exists(check: Check) -> None:
    report = json.loads((GOLDEN / f"{stem(check)}.json").read_text(encoding="utf-8"))
    assert report["id"] == check.meta.id
    assert report["status"] in ("fail", "warn", "unknown")
    for found in report["findings"]:
        assert found["cause"] in check.meta.causes
        if found["status"] in ("fail", "warn"):
            assert found["values"]
            assert found["next"]


@each_of_preflight
def test_preflight_always_answers(check: Check) -> None:
    """Without any fact a check says what it could not read or that it does not apply; it never calls that fine."""
    for workers in ((), ("prefill-0", "decode-0"), ("prefill-0", "decode-0", "router-0", "store-0")):
        ((meta, found),) = run_preflight(view(workers=workers), [check])
        assert found
        assert overall(found) in (Outcome.UNKNOWN, Outcome.NOT_APPLICABLE)
        assert {f.cause for f in found} <= set(meta.causes)
        assert all(m.why and m.fix for f in found for m in f.missing)
