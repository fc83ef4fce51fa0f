"""The command: what it refuses, what it keeps, and that scoring again gives the same."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from pdops.bench import encode, plots, report, run, runlog, session
from pdops.bench.episodes import Episode
from pdops.bench.grid import unseen
from pdops.bench.outcome import Failed, Outcome
from pdops.bench.play import FIRST_JUDGED_S
from pdops.bench.run import Results, load, save
from pdops.bench.session import Choice
from pdops.cli.bench import command
from pdops.cli.schema import command as schema_command
from pdops.errors import PdopsError, UsageError
from tests.bench_diagnosis.made import dies, outcome, said


def _few(count: int = 24, split: str = "develop") -> list:
    return [
        outcome(
            i,
            said("prefill-down" if i % 3 else "x", confidence=0.5 + i / 60),
            features=(float(i), float("nan")),
            healthy_s=300.0,
            split=split,
        )
        for i in range(count)
    ] + [
        outcome(count + i, said(alarm=False), state="healthy", features=(0.0, 1.0), healthy_s=600.0, split=split)
        for i in range(count)
    ]


def _keep(outcomes: list[Outcome], path: Path, failed: tuple[Failed, ...] = ()) -> Path:
    save(Results(outcomes=outcomes, failed=list(failed), rules=runlog.rules_hash()), path)
    return path


FAILED = Failed(name="develop/quiet/edge/chat/1P1D/7", seed=7, why="ZeroDivisionError: division by zero (place.py:3)")


def test_outcomes_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    again = load(_keep(_few(), tmp_path / "o.json.gz", (FAILED,)))
    assert again.rules == runlog.rules_hash()
    assert again.failed == [FAILED]
    assert [o.name for o in again.outcomes] == [o.name for o in _few()]
    assert again.outcomes[3].said == _few()[3].said
    assert encode.encode(again.outcomes) == encode.encode(_few())


@pytest.mark.parametrize("text", ["", "{}", "nonsense"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "o.json.gz"
    path.write_text(text)
    with pytest.raises(UsageError, match="outcomes cannot be read"):
        load(path)


def test_the_held_out_split_needs_to_be_asked_for_by_name() -> None:
    with pytest.raises(UsageError, match="release"):
        session.choose(Choice(split="held-out"))
    assert len(session.choose(Choice(split="held-out", held_out=True, episodes=20))) == 20


def test_healthy_hours_are_made_up_of_look_alikes() -> None:
    found = session.choose(Choice(healthy_hours=3.0, topologies=("1P1D", "2P6D"), learnt=False))
    assert all(e.sound is not None for e in found)
    assert 3.0 <= sum(e.until_s - FIRST_JUDGED_S for e in found) / 3600.0 <= 4.0


def test_a_baseline_that_was_told_the_onset_is_a_baseline_too() -> None:
    told = [dataclasses.replace(o, said={**o.said, "baro, told onset": said("prefill-down")}) for o in _few()]
    assert report.best_baseline(told) is not None
    assert report.best_baseline(told)[0] == "baro, told onset"  # type: ignore[index]


def test_only_the_calibration_split_is_fitted_on_and_only_known_topologies_are_played(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fitted"):
        session.choose(Choice(split="develop", fit=tmp_path / "c.yaml"))
    with pytest.raises(UsageError, match="no such topology"):
        session.choose(Choice(topologies=("3P3D",)))


def test_a_held_out_run_is_written_down_before_it_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> Results:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "run", broken)
    choice = Choice(split="held-out", held_out=True, episodes=3, log=tmp_path / "runs.yaml", command="pdops bench …")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            session.conduct(choice, session.choose(choice))
    runs = runlog.earlier(tmp_path / "runs.yaml")
    assert [r["episodes"] for r in runs] == [3, 3]
    assert runs[0]["rules"] == runlog.rules_hash()
    assert runs[0]["kinds"] == runlog.kinds_hash() != runlog.rules_hash()
    assert runs[0]["unseen_kinds"] == len(unseen())


def test_a_log_that_is_something_else_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "runs.yaml"
    path.write_text("mine: 1\n")
    with pytest.raises(UsageError, match="log of held-out runs"):
        runlog.note(path, {})
    assert yaml.safe_load(path.read_text()) == {"mine": 1}


def test_the_hash_of_the_rules_is_stable() -> None:
    assert runlog.rules_hash() == runlog.rules_hash()
    assert len(runlog.rules_hash()) == 16


def test_scoring_again_prints_every_section(tmp_path: Path) -> None:
    _keep(_few(), tmp_path / "o.json.gz")
    done = CliRunner().invoke(command, ["diagnosis", "--rescore", str(tmp_path / "o.json.gz"), "--no-learnt"])
    assert done.exit_code == 0, done.output
    for heading in (
        "## Aims",
        "## All methods",
        "## By kind",
        "## Healthy clusters",
        "## How sure",
        "## What this does not show",
    ):
        assert heading in done.output


def test_a_report_says_which_topologies_were_not_drawn() -> None:
    about = report.About(title="t", date="d", command="c", versions={}, rules=None, took_s=1.0, jobs=1, cells=(1, 2))
    text = report.markdown(_few(), about)
    assert "2P6D 48; not drawn: 1P1D, 8P32D, 64P256D" in text


def test_a_report_says_which_cells_were_played() -> None:
    about = report.About(title="t", date="d", command="c", versions={}, rules=None, took_s=1.0, jobs=1, cells=(1, 2))
    sound = outcome(9, said(alarm=False), state="healthy", kinds=("quiet",))
    lines = report.markdown([outcome(1, said("prefill-down")), outcome(2, said("x")), sound], about).splitlines()
    assert lines[lines.index("## Cells that were played") + 5 :][:5] == [
        "| what | 2P6D |",
        "|---|---|",
        "| prefill-down | clear chat x2 |",
        "| quiet | chat |",
        "",
    ]


def test_numbers_come_as_json_without_nan(tmp_path: Path) -> None:
    _keep(_few(), tmp_path / "o.json.gz")
    done = CliRunner().invoke(command, ["diagnosis", "--rescore", str(tmp_path / "o.json.gz"), "--no-learnt", "--json"])
    body = json.loads(done.stdout, parse_constant=lambda word: pytest.fail(f"{word} in JSON"))
    assert body["schema"] == "pdops/bench-diagnosis/v1"
    assert body["methods"]["pdops"]["top1"]["n"] == 24


def test_faults_that_were_never_named_are_the_longest_delays() -> None:
    named = [outcome(i, said("prefill-down"), delay_s=delay_s) for i, delay_s in enumerate((0.0, 0.0, 10.0))]
    missed = [outcome(10 + i, said("x"), healthy_s=60.0) for i in range(4)]
    assert encode.encode([*named, missed[0]])["delay_intervals"] == {
        "median": 0.0,
        "p95": None,
        "n": 4,
        "before_impact": 2,
        "never": 1,
    }
    assert encode.encode([*named, *missed])["delay_intervals"]["median"] is None  # type: ignore[index]
    assert encode.encode(named)["delay_intervals"]["p95"] == 2.0  # type: ignore[index]
    assert encode.encode([])["delay_intervals"]["median"] is None  # type: ignore[index]


def test_plots_of_the_same_outcomes_are_the_same_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        plots.draw(_few(), tmp_path / name, "s")
    files = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert len(files) == 5
    assert all((tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes() for f in files)


def test_learnt_baselines_say_when_there_is_too_little_to_learn_from(tmp_path: Path) -> None:
    _keep(_few(2), tmp_path / "o.json.gz")
    done = CliRunner().invoke(command, ["diagnosis", "--rescore", str(tmp_path / "o.json.gz")])
    assert isinstance(done.exception, PdopsError)
    assert "--no-learnt" in done.exception.hint


def test_help_loads_neither_simulator_nor_numpy() -> None:
    code = (
        "import sys, contextlib\nfrom pdops.cli import main\n"
        "with contextlib.suppress(SystemExit):\n    main(['bench', 'diagnosis', '--help'])\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stderr.split())
    assert "--held-out" in done.stdout
    assert not {"numpy", "pdops.sim", "pdops.bench", "sklearn", "matplotlib"} & loaded


def test_a_calibration_is_written_in_the_form_that_a_diagnosis_reads(tmp_path: Path) -> None:
    _keep(_few(60, "calibrate"), tmp_path / "o.json.gz")
    fit = tmp_path / "calibration.yaml"
    given = ["--split", "calibrate", "--rescore", str(tmp_path / "o.json.gz"), "--no-learnt", "--fit", str(fit)]
    done = CliRunner().invoke(command, ["diagnosis", *given])
    assert done.exit_code == 0, done.output
    body = yaml.safe_load(fit.read_text())
    assert (body["schema"], body["knots"][0][0], body["knots"][-1][0]) == ("pdops/calibration/v1", 0.0, 1.0)
    raw, right = zip(*body["knots"], strict=True)
    assert all(a < b for a, b in itertools.pairwise(raw))
    assert list(right) == sorted(right)
    assert "120 episodes" in body["fitted_on"]


@pytest.mark.parametrize(("split", "rules", "why"), [("develop", None, "develop"), ("calibrate", "old", "other rules")])
def test_no_confidence_is_fitted_on_another_split_or_on_other_rules(
    tmp_path: Path, split: str, rules: str | None, why: str
) -> None:
    save(Results(outcomes=_few(60, split), rules=rules or runlog.rules_hash()), tmp_path / "o.json.gz")
    choice = Choice(split="calibrate", replayed=(tmp_path / "o.json.gz",), learnt=False, fit=tmp_path / "c.yaml")
    with pytest.raises(UsageError, match=why):
        session.conduct(choice, session.choose(choice))
    assert not (tmp_path / "c.yaml").exists()


def test_outcomes_that_are_scored_again_are_called_what_they_are(tmp_path: Path) -> None:
    save(Results(outcomes=_few(split="held-out"), rules="0123456789abcdef"), tmp_path / "o.json.gz")
    choice = Choice(replayed=(tmp_path / "o.json.gz",))
    text = session.conduct(choice, session.choose(choice)).text
    assert "held-out split" in text
    assert "- rules: `0123456789abcdef`" in text
    assert "four fifths of these very episodes" in text
    assert "cells (kind × severity × workload × topology): 1 of" in text


def test_learnt_answers_of_several_runs_stay_with_their_own_outcomes(tmp_path: Path) -> None:
    other = [dataclasses.replace(o, name=f"again/{o.number}", state="healthy", expected=()) for o in _few()]
    files = [_keep(outcomes, tmp_path / f"{i}.json.gz") for i, outcomes in enumerate((_few(), other))]
    again = session.conduct(Choice(replayed=tuple(files), drawn=False), ()).outcomes
    assert [o.name for o in again] == [o.name for o in (*_few(), *other)]
    assert [o.state for o in again] == [o.state for o in (*_few(), *other)]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--healthy-hours", "1", "--no-learnt", "--split", "calibrate", "--fit", "c.yaml"], "--fit has no use"),
        (["--healthy-hours", "1", "--no-learnt", "--episodes", "3"], "--episodes has no use with --healthy-hours"),
        (["--rescore", "o.gz", "--episodes", "3"], "--episodes has no use with --rescore"),
        (["--rescore", "o.gz", "--topology", "1P1D"], "--topology has no use with --rescore"),
        (["--rescore", "o.gz", "--seed", "0"], "--seed has no use with --rescore"),
        (["--rescore", "o.gz", "--split", "develop"], "--split has no use with --rescore"),
        (["--train", "o.gz", "--no-learnt"], "--train has no use with --no-learnt"),
        (["--healthy-hours", "1"], "learnt baselines cannot be trained"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(given: list[str], told: str) -> None:
    done = CliRunner().invoke(command, ["diagnosis", *given])
    assert isinstance(done.exception, UsageError)
    assert told in str(done.exception)
    assert done.exception.hint


def test_what_nobody_watched_is_said_and_is_no_number() -> None:
    asked = [dataclasses.replace(o, healthy_s=0.0) for o in _few()]
    body = encode.encode(asked)
    assert body["false_alarms_per_hour"] == {"value": None, "high": None, "hours": None}
    assert body["alarms_while_load_broke_the_promise"] is None
    assert body["delay_intervals"] == {"median": None, "p95": None, "n": 0, "before_impact": None, "never": None}
    about = report.About(title="t", date="d", command="c", versions={}, rules=None, took_s=1.0, jobs=1, cells=(1, 2))
    text = report.markdown(asked, about)
    assert "Healthy time was not watched" in text
    assert "| false alarms per healthy hour | ≤ 0.1 | not watched |" in text
    assert "alarms came then" not in text
    assert "alarms came then" in report.markdown(_few(), about)


def test_an_episode_that_fails_is_named_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sometimes(episode: Episode, **_: object) -> Outcome:
        if episode.number == 1:
            raise ZeroDivisionError("division\nby zero")
        answered = outcome(episode.number, said("prefill-down"), healthy_s=300.0)
        return dataclasses.replace(answered, name=episode.name)

    monkeypatch.setattr(run, "play", sometimes)
    given = ["diagnosis", "--episodes", "3", "--jobs", "1", "--topology", "1P1D", "--no-learnt", "--no-plots"]
    done = CliRunner().invoke(command, [*given, "--out", str(tmp_path)], standalone_mode=False)
    kept = load(tmp_path / "develop.outcomes.json.gz")
    (failed,) = kept.failed
    assert done.return_value == 1
    assert failed.seed == 1
    assert failed.why.startswith("ZeroDivisionError: division by zero (test_cli.py:")
    assert f"episode failed: {failed.name}" in done.stderr
    assert f"`{failed.name}`, seed 1: ZeroDivisionError" in done.stdout
    assert len(kept.outcomes) == 2


def test_an_episode_whose_process_is_killed_is_named_and_nothing_else_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_tried", dies)
    episodes = session.choose(Choice(episodes=6, topologies=("1P1D",), learnt=False))
    results = run.run(episodes, 2)
    (failed,) = results.failed
    assert (failed.name, failed.seed) == (episodes[1].name, episodes[1].seed)
    assert "was ended" in failed.why
    assert [o.name for o in results.outcomes] == [e.name for e in episodes if e is not episodes[1]]


def test_a_run_of_which_every_episode_failed_says_so_also_with_learnt_baselines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: object, **__: object) -> Outcome:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(run, "play", never)
    given = ["diagnosis", "--episodes", "2", "--jobs", "1", "--topology", "1P1D", "--no-plots"]
    done = CliRunner().invoke(command, given, standalone_mode=False)
    assert (done.exception, done.return_value) == (None, 1)
    assert "**2 more episodes failed and are in no number**" in done.stdout


def test_delays_are_of_the_files_that_were_watched() -> None:
    watched = [outcome(n, said("prefill-down"), healthy_s=300.0, delay_s=5.0) for n in range(3)]
    asked = [outcome(n, said("prefill-down")) for n in range(3, 8)]
    found = encode.delays([*watched, *asked])
    assert (found["n"], found["never"], found["p95"]) == (3, 0, found["median"])
    about = report.About(
        title="t", date="d", command="c", versions={}, rules=None, took_s=1.0, jobs=1, cells=(1, 1)
    )  # fmt: skip
    assert "5 of 8 episodes were not watched" in report.markdown([*watched, *asked], about)
    assert "were not watched" not in report.markdown(watched, about)


def test_the_hash_of_what_is_played_covers_the_code_that_makes_episodes() -> None:
    folder = Path(run.__file__).parent
    used = {
        f"{name}.py"
        for file in runlog._MADE_BY
        for name in re.findall(r"^from pdops\.bench\.(\w+) import", (folder / file).read_text(), re.MULTILINE)
    }
    assert {"episodes.py", "scenario.py"} <= set(runlog._MADE_BY)
    assert used <= set(runlog._MADE_BY)


def test_the_json_follows_its_schema(tmp_path: Path) -> None:
    file = _keep(_few(), tmp_path / "o.json.gz", (FAILED,))
    done = CliRunner().invoke(
        command, ["diagnosis", "--rescore", str(file), "--no-learnt", "--json"], standalone_mode=False
    )
    body, schema = json.loads(done.stdout), json.loads(CliRunner().invoke(schema_command, ["bench-diagnosis"]).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(body)
    assert done.return_value == 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate({**body, "more": 1})
