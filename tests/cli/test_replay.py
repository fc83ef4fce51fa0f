"""`pdops replay` refuses a stretch in which nothing can be printed, and says so."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from pdops.cli import cli
from pdops.cli.demo import recording_path
from pdops.errors import UsageError

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
