"""`pdops replay` refuses a stretch in which nothing can be printed, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from pdops.cli import cli
from pdops.cli.demo import recording_path
from pdops.errors import UsageError
from pdops.model.cluster import Cluster, Role, Worker
from pdops.model.frame import Event, EventKind, Frame, LogLine
from pdops.sources.recording.writer import RecordingWriter

FILE = str(recording_path("prefill-killed"))


@pytest.mark.parametrize(
    ("words", "says"),
    [(["--from", "99999"], "--from lies behind the end"), (["--from", "50", "--to", "10"], "--to lies before --from")],
)
def test_a_stretch_without_frames_is_no_silent_success(words: list[str], says: str) -> None:
    done = CliRunner().invoke(cli, ["replay", FILE, *words])
    assert isinstance(done.exception, UsageError)
    assert says in str(done.exception)
    assert done.stdout == ""


@pytest.mark.parametrize("words", [["--from", "nan"], ["--to", "nan"], ["--from", "-1"]])
def test_what_is_no_moment_of_a_recording_is_refused(words: list[str]) -> None:
    assert CliRunner().invoke(cli, ["replay", FILE, *words]).exit_code == 2


def test_a_stretch_is_printed_alone() -> None:
    done = CliRunner().invoke(cli, ["replay", FILE, "--from", "20", "--to", "30", "--no-diagnosis"])
    stamps = [float(line.split()[0]) for line in done.stdout.splitlines() if " run " in line]
    assert stamps
    assert all(20 <= stamp <= 30 for stamp in stamps)


def test_what_the_recorded_cluster_said_cannot_move_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b[2J\x1b]52;c;ZXZpbA==\x07\x9b31m\u202eshown\r\nsecond"
    who = Cluster(name="c", workers=(Worker(id="decode-0", role=Role.DECODE, pool="decode", url="http://127.0.0.1:1"),))
    said = LogLine(t_s=1_000.0, worker="decode-0", line=evil)
    happened = Event(t_s=1_000.0, kind=EventKind.DOWN, worker="decode-0", detail=evil)
    with RecordingWriter(tmp_path / "x.pdrec", who) as writer:
        writer.write(Frame(at_s=1_000.0, logs=(said,), events=(happened,)))
    lines = CliRunner().invoke(cli, ["replay", str(tmp_path / "x.pdrec")]).stdout.splitlines()
    assert [line for line in lines if "shown" in line]
    assert all(line.isprintable() for line in lines)


def test_printed_frames_keep_to_the_seconds_asked_for(tmp_path: Path) -> None:
    who = Cluster(name="c", workers=(Worker(id="decode-0", role=Role.DECODE, pool="decode", url="http://127.0.0.1:1"),))
    with RecordingWriter(tmp_path / "x.pdrec", who) as writer:
        for n in range(70):
            writer.write(Frame(at_s=1_000.0 + 1.03 * n))
        writer.write(Frame(at_s=1_111.0))
    words = ["replay", str(tmp_path / "x.pdrec"), "--every", "5", "--no-diagnosis"]
    stamps = [float(x.split()[0]) for x in CliRunner().invoke(cli, words).stdout.splitlines() if " run " in x]
    assert [stamp // 5 for stamp in stamps] == [*range(15), 22]
    assert all(stamp % 5 < 1.03 for stamp in stamps)
