"""`pdops runbook apply --notify …`, `timeline` and `exporter --journal`: what others are told, and that no run depends on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pdops.cli import main, runbook_run, telling
from pdops.clock import VirtualClock, WallClock
from pdops.runbook import incident
from pdops.runbook.encode import plan_to_json
from tests.runbook.engine_kit import CORDON, Bench, plan
from tests.runbook.receiver_double import ReceiverDouble, receiving


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A cluster that is a double, in place of the one that -c names."""
    made = Bench(tmp_path, VirtualClock(WallClock().now()))

    @contextmanager
    def engine(*_: object) -> Iterator[object]:
        yield made.executor()

    monkeypatch.setattr(runbook_run, "_engine", engine)
    monkeypatch.setattr(runbook_run, "_same", lambda *_: None)
    yield made
    made.journal.close()


@pytest.fixture
def receiver() -> Iterator[ReceiverDouble]:
    with receiving() as double:
        yield double


def _pdops(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in args])
    out, err = capsys.readouterr()
    code = ended.value.code
    return (code if isinstance(code, int) else 0), out, err


def _apply(bench: Bench, capsys: pytest.CaptureFixture[str], *more: object) -> tuple[int, str, str]:
    file = bench.folder / "plan.json"
    file.write_text(plan_to_json(bench.plan(CORDON, "restart-worker")))
    return _pdops(capsys, "runbook", "apply", file, "--target", "prefill=http://127.0.0.1:9", *more)


def _file(bench: Bench, url: str) -> Path:
    file = bench.folder / "url"
    file.write_text(url)
    return file


def test_apply_tells_lines_and_a_webhook_to_the_end_of_the_run(
    bench: Bench, receiver: ReceiverDouble, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _file(bench, receiver.url + "/hook")
    code, out, err = _apply(bench, capsys, "--notify", "stdout", "--notify", f"slack:{file}")
    assert (code, err) == (0, "")
    assert [m["text"].rpartition(": ")[2] for m in receiver.got][1:] == ["approved by ada", "started", "done"]
    assert len(re.findall(r"(?m)^\S+Z  info  \[c\] restart-worker-", out)) == 4


def test_a_receiver_that_is_away_is_said_and_changes_no_outcome(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _file(bench, "http://127.0.0.1:9/SECRET")
    code, out, err = _apply(bench, capsys, "--notify", f"webhook:{file}", "--otlp", "http://127.0.0.1:9")
    assert (code, "done" in out, "SECRET" in out + err, "Max retries" in err) == (0, True, False, False)
    assert "webhook 127.0.0.1 is not told" in err
    assert "traces 127.0.0.1 is not told" in err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--notify", "mail:x"), "does not know this"),
        (("--notify", "slack:"), "does not know this"),
        (("--notify", "slack:/nowhere/url"), "cannot be used"),
        (("--notify", "stdout", "--json"), "standard output is taken"),
        (("--grafana", "https://g.example"), "an address and a token"),
        (("--otlp", "collector"), "not an OTLP endpoint"),
    ],
)
def test_what_cannot_be_told_is_refused_before_anything_is_done(
    bench: Bench, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], told: str
) -> None:
    code, _, err = _apply(bench, capsys, *more)
    assert (code, told in err, bench.backend.effects, bench.journal.runs()) == (2, True, [], ())


def test_a_defect_in_telling_is_said_and_changes_no_outcome(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pdops.runbook.seen import Seen

    def broken(*_: object, **__: object) -> int:
        raise RuntimeError("broken")

    monkeypatch.setattr(Seen, "pump", broken)
    monkeypatch.setattr(telling, "EVERY_S", 0.0)
    code, _, err = _apply(bench, capsys, "--notify", "stdout")
    assert (code, "telling has ended: RuntimeError: broken" in err) == (0, True)


def test_the_timeline_of_a_run_is_markdown_that_shows_names_as_they_are(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    x = bench.executor("ada | <b>")
    run = x.drive(x.open(bench.plan(CORDON, "restart-worker")).id)
    code, out, _ = _pdops(capsys, "runbook", "timeline", run.id, "--journal", bench.journal.path)
    assert code == 0
    assert out.startswith(f"# Timeline of {run.id}\n")
    assert "- Outcome: **done** after " in out
    assert r"ada \| \<b\>" in out
    assert all(line.count(" | ") == 3 for line in out.splitlines() if line.startswith("| 20"))
    assert "cordon worker.cordon: worker/decode-0/cordoned from False to True" in out


def test_the_timeline_since_a_time_has_runs_and_freezes_in_order(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    x = bench.executor()
    x.drive(x.open(bench.plan(CORDON, "restart-worker")).id)
    x.switch.on("eve", "cache migration", "c")
    code, out, _ = _pdops(capsys, "runbook", "timeline", "--since", "2h", "--journal", bench.journal.path)
    table = [line for line in out.splitlines() if line.startswith("| 20")]
    assert (code, "cache migration" in table[-1], "asked for" in table[0]) == (0, True, True)
    assert not any(line.endswith("| acting |") for line in table)
    later = incident.since(bench.journal, bench.clock.now() + 1)
    assert "holds nothing" in later


@pytest.mark.parametrize("args", [(), ("x", "--since", "2h"), ("--since", "yesterday"), ("--since", "9" * 40 + "h")])
def test_a_timeline_of_nothing_is_a_usage_error(
    bench: Bench, capsys: pytest.CaptureFixture[str], args: tuple[str, ...]
) -> None:
    code, _, err = _pdops(capsys, "runbook", "timeline", *args, "--journal", bench.journal.path)
    assert (code, "hint: " in err) == (2, True)


def test_a_timeline_makes_no_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = _pdops(capsys, "runbook", "timeline", "--since", "2h", "--journal", tmp_path / "none.db")
    assert (code, err.startswith("pdops: there is no journal")) == (2, True)
    assert not (tmp_path / "none.db").exists()


def test_the_same_journal_gives_the_same_timeline(bench: Bench) -> None:
    x = bench.executor()
    run = x.open(plan(CORDON, now_s=bench.clock.now()))
    assert incident.of_run(bench.journal, run) == incident.of_run(bench.journal, bench.journal.run(run.id))
