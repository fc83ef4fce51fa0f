"""What `pdops runbook apply|approve|log|verify-audit` and `pdops freeze` say, and their exit statuses."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import jsonschema
import pytest

from pdops.cli import main
from pdops.cli.runbook_run import _left_told
from pdops.clock import WallClock
from pdops.runbook.encode import audit_schema, plan_to_json, run_schema, runs_schema
from pdops.runbook.journal import Journal
from pdops.runbook.model import Risk
from tests.runbook.engine_kit import CORDON, Bench, plan


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal with one run that waits for approval and one that is done."""
    bench = Bench(tmp_path)
    bench.executor("ada").open(bench.plan(CORDON, "waits", risk=Risk.DISRUPTIVE, expires_at_s=WallClock().now() + 600))
    x = bench.executor("ada")
    x.drive(x.open(bench.plan()).id)
    bench.journal.close()
    return tmp_path / "journal.db"


def _pdops(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in args])
    out, err = capsys.readouterr()
    code = ended.value.code
    return (code if isinstance(code, int) else 0), out, err


def test_log_lists_runs_and_tells_what_happened_in_one(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _pdops(capsys, "runbook", "log", "--journal", journal)
    assert (code, [line.split()[-1] for line in out.splitlines()]) == (0, ["planned", "done"])
    code, out, _ = _pdops(capsys, "runbook", "log", "scale-out", "--journal", journal)
    assert code == 0
    assert "start pool.scale-out: pool/prefill/replicas from 1 to 2" in out
    code, out, _ = _pdops(capsys, "runbook", "log", "scale-out", "--journal", journal, "--json")
    jsonschema.validate(json.loads(out), run_schema())
    assert json.loads(out)["events"]


def test_what_scripts_read_follows_its_schema(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = _pdops(capsys, "runbook", "log", "--journal", journal, "--json")
    jsonschema.validate(json.loads(out), runs_schema())
    assert json.loads(out)["runs"]
    _, out, _ = _pdops(capsys, "runbook", "verify-audit", "--journal", journal, "--json")
    jsonschema.validate(json.loads(out), audit_schema())


@pytest.mark.parametrize("words", [("runbook", "log"), ("runbook", "timeline", "--since", "3h"), ("freeze", "status")])
def test_a_mistyped_journal_is_not_one_in_which_nothing_happened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    code, out, err = _pdops(capsys, *words, "--journal", tmp_path / "typo.db")
    assert (code, out, err.splitlines()[0]) == (2, "", f"pdops: there is no journal: {tmp_path / 'typo.db'}")
    assert list(tmp_path.iterdir()) == []


def test_whether_it_is_frozen_where_nothing_can_be_looked_for_is_an_error_of_the_journal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = _pdops(capsys, "freeze", "status", "--journal", tmp_path / ("x" * 300) / "journal.db")
    assert (code, out) == (2, "")
    assert err.startswith("pdops: the journal cannot be used")


def test_an_unknown_run_is_a_short_error(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = _pdops(capsys, "runbook", "log", "nobody", "--journal", journal)
    assert (code, err.splitlines()[0]) == (2, "pdops: no such run: nobody")


def test_approval_by_the_same_person_is_refused_and_by_another_taken(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = _pdops(capsys, "runbook", "approve", "waits", "--journal", journal, "--as", "ada")
    assert (code, "approved by somebody else" in err) == (6, True)
    code, out, _ = _pdops(capsys, "runbook", "approve", "waits", "--journal", journal, "--as", "bob")
    assert (code, "approved by bob" in out) == (0, True)


def test_verify_audit_names_what_was_touched(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _pdops(capsys, "runbook", "verify-audit", "--journal", journal)[0] == 0
    with sqlite3.connect(journal) as other:
        other.execute("UPDATE events SET actor='eve' WHERE seq=2")
    other.close()
    code, out, _ = _pdops(capsys, "runbook", "verify-audit", "--journal", journal)
    assert (code, "event 2 was changed" in out) == (1, True)


def test_freeze_holds_until_it_is_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--journal", tmp_path / "j.db", "--as", "eve")
    assert _pdops(capsys, "freeze", "on", "--why", "maintenance", *at)[:2] == (0, "frozen by eve: maintenance\n")
    assert _pdops(capsys, "freeze", "status", *at)[0] == 6
    assert _pdops(capsys, "freeze", "off", *at)[:2] == (0, "not frozen\n")
    assert _pdops(capsys, "freeze", "status", *at)[:2] == (0, "not frozen\n")
    with Journal(tmp_path / "j.db", WallClock()) as journal:
        assert [e.kind for e in journal.events()] == ["froze", "thawed"]


def test_apply_needs_something_that_can_be_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    file.write_text(plan_to_json(plan()))
    args = ("runbook", "apply", file, "--target", "prefill=http://127.0.0.1:9", "--journal", tmp_path / "j.db")
    code, _, err = _pdops(capsys, *args)
    assert (code, "nothing is known that could be changed" in err) == (2, True)


def test_a_plan_file_that_was_edited_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    file.write_text(plan_to_json(plan()).replace('"budget_per_hour": 2', '"budget_per_hour": 9'))
    args = ("runbook", "apply", file, "--target", "prefill=http://127.0.0.1:9", "--journal", tmp_path / "j.db")
    code, _, err = _pdops(capsys, *args)
    assert (code, "changed after it was made" in err) == (6, True)


def test_freezes_of_single_clusters_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--journal", tmp_path / "j.db", "--as", "eve")
    assert _pdops(capsys, "freeze", "on", "--cluster", "prod", *at)[:2] == (0, "prod: frozen by eve\n")
    assert _pdops(capsys, "freeze", "status", *at)[:2] == (6, "prod: frozen by eve\n")
    assert _pdops(capsys, "freeze", "status", "--cluster", "other", *at)[0] == 0
    assert _pdops(capsys, "freeze", "on", "--cluster", " ", *at)[0] == 2


@pytest.mark.parametrize("empty", [False, True])
def test_a_journal_that_is_not_there_proves_nothing(
    empty: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "j.db"
    if empty:
        file.touch()
    code, out, err = _pdops(capsys, "runbook", "verify-audit", "--journal", file)
    assert (code, out) == (2, "")
    assert "there is no journal" in err
    assert file.exists() is empty
    assert not empty or file.stat().st_size == 0


def test_a_plan_that_is_no_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(b"\xff\xfe\x00")
    args = ("runbook", "apply", file, "--target", "prefill=http://127.0.0.1:9", "--journal", tmp_path / "j.db")
    code, _, err = _pdops(capsys, *args)
    assert code == 2
    assert "plan cannot be used" in err


def test_freezing_works_where_the_journal_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "j.db").write_text("no journal")
    code, _, err = _pdops(capsys, "freeze", "on", "--why", "fire", "--as", "eve", "--journal", tmp_path / "j.db")
    assert (code, "frozen all the same" in err) == (2, True)
    assert (tmp_path / "FREEZE").read_text() == "eve: fire\n"


def test_text_that_is_no_text_freezes_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--journal", tmp_path / "j.db")
    code, out, _ = _pdops(capsys, "freeze", "on", "--why", "fire\udcff", "--as", "\udcfeeve", *at)
    assert (code, out) == (0, "frozen by eve: fire\n")
    code, _, err = _pdops(capsys, "freeze", "on", "--cluster", "prod\udcff", *at)
    assert (code, err.splitlines()[0]) == (2, "pdops: a cluster has no such name: prod")


@pytest.mark.parametrize("name", ["", "\udcff"])
def test_a_run_that_is_not_named_is_none(journal: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    with sqlite3.connect(journal) as other:
        other.execute("DELETE FROM runs WHERE state='done'")
    other.close()
    code, _, err = _pdops(capsys, "runbook", "approve", name, "--journal", journal, "--as", "bob")
    assert (code, "no such run" in err) == (2, True)


def test_a_user_without_a_name_has_a_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 54321")

    monkeypatch.setattr("getpass.getuser", nobody)
    monkeypatch.setattr("os.getuid", lambda: 54321)
    code, out, _ = _pdops(capsys, "freeze", "on", "--journal", tmp_path / "j.db")
    assert (code, out) == (0, "frozen by uid-54321\n")


def test_an_interrupted_run_says_how_it_is_left(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Journal(journal, WallClock()) as opened:
        waits, done = (r.id for r in opened.runs())
        for run, told in ((waits, True), (done, False)):
            with pytest.raises(KeyboardInterrupt), _left_told(opened, run):
                raise KeyboardInterrupt
            assert (f"interrupted: {run} is left" in capsys.readouterr().err) is told


def test_a_cluster_that_no_run_is_about_is_frozen_and_said(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("--journal", journal, "--as", "eve")
    with Journal(journal, WallClock()) as opened:
        (known,) = opened.clusters()
    code, out, said = _pdops(capsys, "freeze", "on", "--cluster", f"{known}x", *at)
    assert (code, out) == (0, f"{known}x: frozen by eve\n")
    assert f"no run is about {known}x; the journal knows {known}" in said
    assert _pdops(capsys, "freeze", "on", "--cluster", known, *at)[2] == ""
