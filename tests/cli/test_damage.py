"""A damaged recording says so wherever it is judged."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from pdops.cli import cli
from pdops.cli.demo import recording_path
from pdops.diagnose.encode import schema
from pdops.diagnose.engine import diagnose
from pdops.sources.recording import open_recording
from pdops_tui.models.diagnosis import trace
from pdops_tui.player import Player


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A recording with something strange behind its end."""
    path = tmp_path / "damaged.pdrec"
    path.write_bytes(recording_path("prefill-killed").read_bytes() + b"hello")
    return path


@pytest.mark.parametrize("more", [[], ["--at", "90"]])
def test_the_published_diagnosis_lists_it_as_missing(damaged: Path, more: list[str]) -> None:
    done = CliRunner().invoke(cli, ["diagnose", "--replay", str(damaged), "--json", "--fail-on", "never", *more])
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema())
    found = [m for m in document["missing"] if m["signal"] == "recording"]
    assert len(found) == 1
    assert "is not a recording and was left out" in found[0]["why"]


def test_a_watched_recording_lists_it_from_where_it_was_read(damaged: Path) -> None:
    words = ["diagnose", "--replay", str(damaged), "--watch", "--json", "--fail-on", "never"]
    last = json.loads(CliRunner().invoke(cli, words).stdout.splitlines()[-1])
    assert [m["signal"] for m in last["missing"]].count("recording") == 1


def test_the_printed_screen_says_it(damaged: Path) -> None:
    done = CliRunner().invoke(cli, ["top", "--once", "--replay", str(damaged)], env={"COLUMNS": "160"})
    assert "is not a recording and was left out" in done.stdout


def test_the_played_screen_says_it_once_it_was_read(damaged: Path) -> None:
    player = Player(open_recording(damaged))
    player.go_to(1_000_000)
    view = player.view()
    report = diagnose(view)
    assert [m.signal for m in report.missing].count("recording") == 1
    assert any("was left out" in entry.text for entry in trace(report, view.notes))
