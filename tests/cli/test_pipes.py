"""How commands end when nobody reads on, and how wide they write."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pdops.cli import READER_GONE
from pdops.cli.style import MAX_WIDTH, MIN_WIDTH, width


@pytest.mark.parametrize("args", [("explain", "--list"), ("schema", "diagnosis"), ("demo", "--once"), ("--help",)])
def test_a_reader_that_leaves_ends_a_command_as_sigpipe_does(args: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "pdops", *args]
    with os.fdopen(writing, "wb") as gone:
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True, timeout=90, check=False)
    assert (done.returncode, done.stderr) == (READER_GONE, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_written_to_in_vain(closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m pdops demo --once {closed}', sys.executable],
        capture_output=True,
        timeout=90,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("120", 120),
        ("0000120", 120),
        ("1", MIN_WIDTH),
        ("0", MIN_WIDTH),
        ("9" * 5000, MAX_WIDTH),
        ("999999999999", MAX_WIDTH),
        ("²", 100),
        ("-5", 100),
        ("", 100),
    ],
)
def test_columns_are_kept_within_reason(monkeypatch: pytest.MonkeyPatch, asked: str, found: int) -> None:
    monkeypatch.setenv("COLUMNS", asked)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert width() == found
